"""What a task is: everything a method or an evaluation needs to know about a model's job, with defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.evaluate import Scorer
    from gradpivot.tasks.objectives import Objective

__all__ = [
    "DoubtingTask", "Forgetting", "GradualTask", "Predictions", "Task", "check_per_sample", "check_task",
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


class Task(ABC):
    """How to run a model on a batch of the user's own kind. A task of your own inherits from this, or from another.

    Two losses and the label of a sample are all that it must have.
    """

    predicts: ClassVar[bool] = True
    """Whether its models predict labels, by :meth:`predict`. A generator's do not."""
    is_gradual: ClassVar[bool] = False
    """Whether it measures the degree of forgetting; see :class:`GradualTask`."""
    knows_doubt: ClassVar[bool] = False
    """Whether it measures how sure a model is of each sample; see :class:`DoubtingTask`."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages beside torch, NumPy and scikit-learn whose version decides its numbers."""

    @classmethod
    def required(cls, task: Task, by: str) -> Self:
        """The task, if it is of this kind.

        Raises:
            GradPivotError: for a method (``by``) that is defined for this kind only.
        """
        if isinstance(task, cls):
            return task
        raise GradPivotError(
            f"{by} is defined for {cls.__name__.lower()}, and the task is a {type(task).__name__}; use another method, "
            f"or a task that inherits from {cls.__name__}"
        )

    @property
    def loss_unit(self) -> float:
        """The change of a loss that matters as much as one nat does to a classifier; step sizes are checked in it."""
        return 1.0

    @property
    def retain_budget(self) -> float | None:
        """By how much L_r may rise over a whole run; None for the usual 0.15 of :attr:`loss_unit`."""
        return None

    @abstractmethod
    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """L_r on a batch: lower = better kept."""

    @abstractmethod
    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """L_f on a batch: lower = more forgotten."""

    @abstractmethod
    def target_of(self, sample: Any) -> Any:
        """The label of one sample, for splitting by class."""

    def predict(self, model: nn.Module, batch: Any) -> Predictions:
        """Confidence and correctness per sample, from one forward pass.

        Raises:
            GradPivotError: for a generator, which is judged by what it makes.
        """
        raise GradPivotError(
            f"a model of the task {type(self).__name__} predicts no label, so there is no accuracy; judge what it "
            f"makes (docs/diffusion.md)"
        )

    def meant(self, objective: Objective) -> Objective:
        """What an objective stands for here: itself, unless the task has a counterpart for it."""
        return objective

    def scorer(self) -> Scorer | None:
        """How its models are scored; None for the usual: RA, UA, TA and MIA of models that predict, else losses."""
        return None

    def probe(self, model: nn.Module, batch: Any) -> Predictions | None:
        """Run the model once, as training or scoring will: what does not fit raises here.

        Returns:
            Its predictions, if it makes any.
        """
        if self.predicts:
            return self.predict(model, batch)
        self.retain_loss(model, batch)
        return None


class GradualTask(Task):
    """A task that measures degrees of forgetting: what CUP steers by."""

    is_gradual = True

    @abstractmethod
    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and the degree of forgetting, from one forward pass."""

    def degree(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The degree alone, for tasks where that takes less than the loss does."""
        return self.forgetting(model, batch, objective).degree


class DoubtingTask(GradualTask):
    """A task that also measures how sure a model is of each sample: what CUP steers by when records are forgotten."""

    knows_doubt = True

    @abstractmethod
    def doubting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and, instead of the degree, the doubt 1 − p_θ(y|x) of each sample, from one forward pass."""


def check_task(task: object) -> None:
    """Raise for something that only looks like a task."""
    if not isinstance(task, Task):
        raise GradPivotError(
            f"the task is a {type(task).__name__}; let it inherit from gradpivot.Classification, or from "
            f"gradpivot.tasks.Task, which has defaults for all but two losses and the label of a sample"
        )


def check_per_sample(what: str, values: Tensor, samples: int, *, share: bool = False, otherwise: str = "") -> None:
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
            f"{what} has the shape {tuple(values.shape)} for {samples} samples; give one number per sample{otherwise}"
        )
    outside = values[(values < 0) | (values > 1)] if share else values[:0]
    if len(outside):
        raise GradPivotError(f"{what} is {float(outside[0]):g} for a sample; give a probability, in [0, 1]{otherwise}")
