"""Base classes of tasks: how to run, train and score a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scorer
    from gradpivot.tasks.objectives import Objective

__all__ = [
    "Forgetting",
    "GradualTask",
    "Predictions",
    "Task",
    "UncertaintyTask",
    "check_per_sample",
    "check_task",
]  # fmt: skip


class Predictions(NamedTuple):
    """Per-sample predictions of a batch."""

    confidence: Tensor
    """Probability p_θ(y|x) of the true label, shape n."""
    correct: Tensor
    """Whether the prediction is correct, n booleans."""


class Forgetting(NamedTuple):
    """Forget loss and degree of forgetting of a batch, from one forward pass."""

    loss: Tensor
    """Mean L_f over the batch."""
    degree: Tensor
    """Degree of forgetting per sample, shape n; 1 is fully forgotten. γ sets its mean over D_f."""


class Task(ABC):
    """How to run a model on a batch. Inherit from this or another task to write your own.

    A task must implement two losses and :meth:`target_of`; everything else has a default.
    """

    predicts: ClassVar[bool] = True
    """Whether its models predict labels (:meth:`predict`); False for generators."""
    is_gradual: ClassVar[bool] = False
    """Whether it measures the degree of forgetting; see :class:`GradualTask`."""
    measures_uncertainty: ClassVar[bool] = False
    """Whether it measures per-sample uncertainty; see :class:`UncertaintyTask`."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages, besides torch, NumPy and scikit-learn, whose version affects results."""

    @classmethod
    def require(cls, task: Task, by: str) -> Self:
        """Return the task if it is an instance of this class.

        Raises:
            GradPivotError: If it is not; ``by`` names the method that needs it.
        """
        if isinstance(task, cls):
            return task
        raise GradPivotError(
            f"{by} only supports {cls.__name__.lower()}, but the task is a {type(task).__name__}; use another method, "
            f"or a task that inherits from {cls.__name__}"
        )

    @property
    def loss_unit(self) -> float:
        """Loss change equivalent to one nat of a classifier's cross-entropy; scales the bounds of the dial."""
        return 1.0

    @property
    def retain_budget(self) -> float | None:
        """Rise of L_r that a whole run may cause; None for 0.15 :attr:`loss_unit`."""
        return None

    @property
    def search_samples(self) -> int | None:
        """Maximum number of samples of each set that the dial's line search measures; None for its default."""
        return None

    @abstractmethod
    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """L_r on a batch; lower is better."""

    @abstractmethod
    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """L_f on a batch; lower means more forgotten."""

    @abstractmethod
    def target_of(self, sample: Any) -> Any:
        """The label of a sample, for splitting by class."""

    def predict(self, model: nn.Module, batch: Any) -> Predictions:
        """Per-sample confidence and correctness.

        Raises:
            GradPivotError: For a generator.
        """
        raise GradPivotError(
            f"{type(self).__name__} models do not predict labels, so they have no accuracy; score their samples "
            f"instead (docs/generators.md)"
        )

    def counterpart(self, objective: Objective) -> Objective:
        """The task's equivalent of an objective; by default the objective itself."""
        return objective

    def anchored(self, original: nn.Module, split: ForgetSplit) -> Task:
        """The task whose losses and degree the dial uses; by default the task itself.

        A generator has no degree of forgetting but the way from the original model's outputs to those it should have.

        Args:
            original: The model before the run; copied if it is needed.
            split: The data to forget and to retain.
        """
        return self

    def restriction(self, model: nn.Module, note: Callable[[str], None]) -> Sequence[Tensor | None] | None:
        """Masks of the trainable weights that a run under the dial may change; None for all of them.

        Called on the task that :meth:`anchored` returned. The mask of ``saliency`` replaces it.

        Args:
            model: The model in training.
            note: Tells the user something about the run.
        """
        return None

    def scorer(self) -> Scorer | None:
        """How to score models; None for the default: accuracies and attacks if they predict labels, else losses."""
        return None

    def probe(self, model: nn.Module, batch: Any) -> Predictions | None:
        """Run the model once to check that it fits the data.

        Returns:
            The predictions, if the task predicts labels.
        """
        if self.predicts:
            return self.predict(model, batch)
        self.retain_loss(model, batch)
        return None


class GradualTask(Task):
    """A task that measures the degree of forgetting, which the dial needs."""

    is_gradual = True

    @abstractmethod
    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and degree of forgetting, from one forward pass."""

    def degree(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The degree only; override it if that is cheaper than with the loss."""
        return self.forgetting(model, batch, objective).degree


class UncertaintyTask(GradualTask):
    """A task that also measures uncertainty, which the dial needs to forget records."""

    measures_uncertainty = True

    @abstractmethod
    def uncertainty(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """L_f and the uncertainty 1 − p_θ(y|x) of each sample (as ``degree``), from one forward pass."""


def check_task(task: object) -> None:
    """Raise unless ``task`` is a :class:`Task`."""
    if not isinstance(task, Task):
        raise GradPivotError(
            f"the task is a {type(task).__name__}; inherit from gradpivot.Classification or gradpivot.tasks.Task"
        )


def check_per_sample(what: str, values: Tensor, samples: int, *, share: bool = False, otherwise: str = "") -> None:
    """Raise unless there is one value per sample.

    Args:
        what: Describes the values, for the error message.
        values: The values.
        samples: Number of samples.
        share: Whether the values are probabilities, which must be in [0, 1] or NaN.
        otherwise: An alternative solution, for the error message.
    """
    if tuple(values.shape) != (samples,):
        raise GradPivotError(
            f"{what} has the shape {tuple(values.shape)} for {samples} samples; return one value per sample{otherwise}"
        )
    outside = values[(values < 0) | (values > 1)] if share else values[:0]
    if len(outside):
        raise GradPivotError(f"{what} is {float(outside[0]):g}; return a probability between 0 and 1{otherwise}")
