"""The scorer of generators that nobody judges: their losses on forget and retain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scorer import Scorer

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["LossScorer", "LossScores"]


@dataclass(frozen=True, kw_only=True)
class LossScores:
    """The mean training loss on the two sets; no accuracies, since nobody said what the samples show.

    Attributes:
        forget_loss: On the forget set: higher = more forgotten. None if the run diverged.
        retain_loss: On the retain set: lower = better kept.
        n_forget: Samples of the forget set that were looked at.
        n_retain: Of the retain set.
    """

    metrics: ClassVar[tuple[str, ...]] = ()

    forget_loss: float | None
    retain_loss: float | None
    n_forget: int
    n_retain: int

    @property
    def ra(self) -> float:
        """Not known.

        Raises:
            GradPivotError: always.
        """
        raise self._unknown("RA")

    @property
    def ua(self) -> float:
        """Not known.

        Raises:
            GradPivotError: always.
        """
        raise self._unknown("UA")

    def vector(self, metrics: tuple[str, ...] = ()) -> tuple[float, ...]:
        """Nothing: losses are no coordinates of a frontier."""
        if metrics:
            raise self._unknown(metrics[0].upper())
        return ()

    def interval(self, metric: str) -> tuple[float, float]:
        """Not known.

        Raises:
            GradPivotError: always.
        """
        raise self._unknown(metric.upper())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LossScores:
        """Read back what :meth:`to_dict` wrote."""
        return cls(**values)

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
            f"{metric} is not known: a generator predicts no label, and its samples were not judged; give a scorer "
            f"(docs/diffusion.md)"
        )


@dataclass(frozen=True, kw_only=True)
class LossScorer(Scorer):
    """Scores by the task's training loss, in eval mode and with the same random numbers for every model.

    Attributes:
        task: Whose losses.
        retain_scored: Look at this many samples of each set; at 1,024 if None.
        workers: Data-loading processes.
    """

    task: Task
    retain_scored: int | None = None
    workers: int = 0

    def check(self, split: ForgetSplit) -> None:
        """Raise for a part of less than one sample."""
        self.sizes(split)

    def scores(self, model: nn.Module, split: ForgetSplit) -> LossScores:
        """Both losses."""
        from gradpivot.evaluate.on_test import mean_loss

        forget, retain = (mean_loss(model, split.train, part, self.task, self.workers) for part in self._parts(split))
        sizes = self.sizes(split)
        return LossScores(forget_loss=forget, retain_loss=retain, n_forget=sizes["forget"], n_retain=sizes["retain"])

    def of_diverged(self, split: ForgetSplit) -> LossScores:
        """No losses."""
        return LossScores(forget_loss=None, retain_loss=None, n_forget=0, n_retain=0)

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """How many samples of each set are looked at."""
        return dict(zip(("forget", "retain"), map(len, self._parts(split)), strict=True))

    def _parts(self, split: ForgetSplit) -> tuple[Any, Any]:
        from gradpivot.evaluate.classifiers.evaluation import scored_part
        from gradpivot.evaluate.on_test import TEST_SAMPLES

        many = TEST_SAMPLES if self.retain_scored is None else self.retain_scored
        return scored_part(split.forget_indices, many), scored_part(split.retain_indices, many)
