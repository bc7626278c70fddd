"""The effect of a run on already forgotten records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.dial import DialSettings
from gradpivot.evaluate import fixed_subset, predictions
from gradpivot.runtime import evaluating

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.runs.run import Running

__all__ = ["AlreadyForgotten", "measure_already_forgotten"]

RELEARNED = 0.1
"""Report what was lost above this fraction of the gap to retained records.

An earlier request opened that gap. It counts as missed if it falls short by a tenth (``UNCERTAINTY_TOLERANCE``), so a
later one may not take back more than that.
"""
_COMPARED = 2000
"""Retained records measured."""


@dataclass(frozen=True, kw_only=True)
class AlreadyForgotten:
    """Mean uncertainty 1 − p_θ(y|x) of the records that earlier requests deleted.

    Attributes:
        n: Number of these records.
        before: Of the original.
        after: Of the new model.
        retained: Of the original on retained records, for comparison.
        excluded: Whether the run trained new weights without them: what it knows of them it knows of unseen data.
    """

    n: int
    before: float
    after: float
    retained: float
    excluded: bool = False

    @property
    def relearned(self) -> bool:
        """Whether the run took back more than a tenth of what earlier requests forgot."""
        if self.excluded:
            return False
        gap = self.before - self.retained
        return gap > DialSettings().min_record_gap and self.before - self.after > RELEARNED * gap

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return asdict(self) | {"relearned": self.relearned}

    def __str__(self) -> str:
        records = f"{self.n:,} record{'' if self.n == 1 else 's'}"
        return f"{records} already forgotten: mean uncertainty {100 * self.before:.2f} % → {100 * self.after:.2f} %"


def measure_already_forgotten(
    original: nn.Module, model: nn.Module, split: ForgetSplit, running: Running, *, excluded: bool
) -> AlreadyForgotten | None:
    """Measure both models; None if there are no such records, or the models predict no labels."""
    if len(split.already_forgotten) == 0 or not running.task.predicts:
        return None

    def uncertainty(one: nn.Module, indices: np.ndarray) -> float:
        with evaluating(one):
            found = predictions(
                one, split.train, indices, running.task, workers=running.workers, replicas=running.replicas
            )
        return float(1 - found.confidence.mean())

    return AlreadyForgotten(
        n=len(split.already_forgotten),
        before=uncertainty(original, split.already_forgotten),
        after=uncertainty(model, split.already_forgotten),
        retained=uncertainty(original, fixed_subset(split.retain_indices, _COMPARED)),
        excluded=excluded,
    )
