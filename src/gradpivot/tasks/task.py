"""The protocol of a task: everything a method or an evaluation needs to know about a model's job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.objectives import Objective

__all__ = [
    "DoubtingTask", "Forgetting", "GradualTask", "Predictions", "Task", "check_per_sample", "degree_of", "loss_unit",
    "meaning_of", "predicts",
]  # fmt: skip


class Predictions(NamedTuple):
    """What one forward pass tells about each sample of a batch."""

    confidence: Tensor
    """p_θ(y|x) of the true label, n numbers in [0, 1]."""
    correct: Tensor
    """Whether the prediction is the true label, n booleans."""


class Forgetting(NamedTuple):
    """What one forward pass over forget samples tells a method that steers by it."""

    loss: Tensor
    """L_f, the mean over the batch."""
    degree: Tensor
    """How much of each sample is forgotten, n numbers whose mean over D_f is what γ asks for: 1 is all of it."""


class Task(Protocol):
    """How to run a model on a batch of the user's own kind.

    A task whose losses are not in nats has a ``loss_unit``: the change of a loss that matters as one nat does to a
    classifier. Steps are checked in that unit. It may also have ``may_cost``: by how much L_r may rise over a whole run
    to a degree, where 0.15 of that unit is not what does no harm.
    """

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """L_r on a batch: lower = better kept."""
        ...

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """L_f on a batch: lower = more forgotten."""
        ...

    def predict(self, model: nn.Module, batch: Any) -> Predictions:
        """Confidence and correctness per sample, from one forward pass."""
        ...

    def target_of(self, sample: Any) -> Any:
        """The label of one sample, for splitting by class."""
        ...


class GradualTask(Task, Protocol):
    """A task that knows degrees of forgetting: what CUP steers by.

    Where the degree takes less than the loss does, a task may have ``degree(model, batch, objective)`` for it alone.
    """

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and the degree of forgetting, from one forward pass."""
        ...


class DoubtingTask(GradualTask, Protocol):
    """A task that also knows how sure a model is of each sample: what CUP steers by when records are forgotten."""

    def doubting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and the doubt 1 − p_θ(y|x) of each sample in the place of the degree, from one forward pass."""
        ...


def degree_of(task: GradualTask, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
    """The degree of forgetting of each sample, without the loss where that saves something."""
    alone = getattr(task, "degree", None)
    if alone is None:
        return task.forgetting(model, batch, objective).degree
    return cast("Tensor", alone(model, batch, objective))


def check_per_sample(
    what: str, values: Tensor, samples: int, *, share: bool = False, otherwise: str = ""
) -> None:
    """Raise unless there is one number per sample: a mean over tokens or pixels says nothing about samples.

    Args:
        what: The task and what it gives, for the error.
        values: What it gave.
        samples: For how many samples.
        share: Whether the numbers are probabilities: those outside [0, 1] are refused, NaN is not.
        otherwise: Another way out.
    """
    if tuple(values.shape) != (samples,):
        raise GradPivotError(
            f"{what} has the shape {tuple(values.shape)} for {samples} samples; give one number per "
            f"sample{otherwise}"
        )
    outside = values[(values < 0) | (values > 1)] if share else values[:0]
    if len(outside):
        raise GradPivotError(
            f"{what} is {float(outside[0]):g} for a sample; give a probability, in [0, 1]{otherwise}"
        )


def meaning_of(task: Task, objective: Objective) -> Objective:
    """What an objective stands for in a task; one that has no meaning there of its own stands for itself."""
    meant = getattr(task, "meant", None)
    return objective if meant is None else cast("Objective", meant(objective))


def loss_unit(task: Task) -> float:
    """What a nat is in a task's losses."""
    return float(getattr(task, "loss_unit", 1.0))


def predicts(task: Task) -> bool:
    """Whether a model of this task predicts labels; a generator's task says ``predicts = False``."""
    return bool(getattr(task, "predicts", True))
