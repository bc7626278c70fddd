"""The fallback scorer of generators: losses on the forget and retain sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scorer import Scorer
from gradpivot.runtime import Number, checked

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["LossScorer", "LossScores"]


@dataclass(frozen=True, kw_only=True)
class LossScores:
    """Mean training losses on the two sets. There are no accuracies because no classifier judged the samples.

    Attributes:
        forget_loss: Loss on the forget set; higher means more forgotten. None if the run diverged.
        retain_loss: Loss on the retain set; lower is better. None if the run diverged.
        n_forget: Number of forget samples scored.
        n_retain: Number of retain samples scored.
    """

    metrics: ClassVar[tuple[str, ...]] = ()

    forget_loss: float | None
    retain_loss: float | None
    n_forget: int
    n_retain: int

    @property
    def ra(self) -> float:
        """Not available.

        Raises:
            GradPivotError: Always.
        """
        raise self._unknown("RA")

    @property
    def ua(self) -> float:
        """Not available.

        Raises:
            GradPivotError: Always.
        """
        raise self._unknown("UA")

    def vector(self, metrics: tuple[str, ...] = ()) -> tuple[float, ...]:
        """An empty tuple: a frontier has no loss axes."""
        if metrics:
            raise self._unknown(metrics[0].upper())
        return ()

    def interval(self, metric: str) -> tuple[float, float]:
        """Not available.

        Raises:
            GradPivotError: Always.
        """
        raise self._unknown(metric.upper())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LossScores:
        """Inverse of :meth:`to_dict`."""
        kinds = {"forget_loss": Number | None, "retain_loss": Number | None, "n_forget": int, "n_retain": int}
        return cls(**checked(values, **kinds))

    def __str__(self) -> str:
        if self.forget_loss is None or self.retain_loss is None:
            return "no losses: the run diverged"
        return (
            f"loss {self.forget_loss:.4f} on the forget set, {self.retain_loss:.4f} on the retain set (no UA or RA: "
            f"samples were not judged)"
        )

    @staticmethod
    def _unknown(metric: str) -> GradPivotError:
        return GradPivotError(
            f"{metric} is not available: a generator predicts no labels, and no classifier judged its samples; pass a "
            f"scorer (docs/generators.md)"
        )


@dataclass(frozen=True, kw_only=True)
class LossScorer(Scorer):
    """Scores models by the task's training loss, in eval mode and with the same random numbers for every model.

    Attributes:
        task: Computes the losses.
        retain_scored: Score this many samples of each set; 1,024 if None.
        workers: Data-loading processes.
    """

    task: Task
    retain_scored: int | None = None
    workers: int = 0

    def check(self, split: ForgetSplit) -> None:
        """Raise for an invalid ``retain_scored``."""
        self.sizes(split)

    def scores(self, model: nn.Module, split: ForgetSplit) -> LossScores:
        """Mean losses on the forget and retain sets."""
        from gradpivot.evaluate.on_test import mean_loss

        forget, retain = (mean_loss(model, split.train, part, self.task, self.workers) for part in self._parts(split))
        sizes = self.sizes(split)
        return LossScores(forget_loss=forget, retain_loss=retain, n_forget=sizes["forget"], n_retain=sizes["retain"])

    def of_diverged(self, split: ForgetSplit) -> LossScores:
        """No losses."""
        return LossScores(forget_loss=None, retain_loss=None, n_forget=0, n_retain=0)

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """Number of samples scored in each set."""
        return dict(zip(("forget", "retain"), map(len, self._parts(split)), strict=True))

    def _parts(self, split: ForgetSplit) -> tuple[Any, Any]:
        from gradpivot.evaluate.classifiers.evaluation import fixed_subset
        from gradpivot.evaluate.on_test import TEST_SAMPLES

        count = TEST_SAMPLES if self.retain_scored is None else self.retain_scored
        return fixed_subset(split.forget_indices, count), fixed_subset(split.retain_indices, count)
