"""The direction of a step in the memory of one of its gradients, and what can still be told of that one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.geometry import Weights, combine
from gradpivot.loop.outcome import Moved

if TYPE_CHECKING:
    from gradpivot.loop.gradients import Gradients
    from gradpivot.runtime import Gradient

__all__ = ["Combined"]


class Combined:
    """g = a·f + b·r, written over the gradient with the larger share of it; the other one is kept.

    What the overwritten one would have given follows from g and the other. That divides by the larger share's weight,
    so that no precision is lost.

    Args:
        gradients: f and r; one of them is overwritten.
        weights: (a, b), not both zero.
    """

    def __init__(self, gradients: Gradients, weights: Weights) -> None:
        gram = gradients.gram
        share_of_forget = abs(weights.forget) * gram.forget_norm
        share_of_retain = abs(weights.retain) * gram.retain_norm
        self._over_retain = bool(weights.retain) and share_of_retain >= share_of_forget
        over = "retain" if self._over_retain else "forget"
        self._weights = weights
        self.kept: Gradient = gradients.forget if self._over_retain else gradients.retain
        self.gradient: Gradient = combine(gradients.forget, gradients.retain, weights, gram, over=over)

    def along_both(self, along_kept: float, along_combined: float) -> Moved:
        """⟨Δθ,f⟩ and ⟨Δθ,r⟩ from the products of Δθ with the kept gradient and with g."""
        kept_weight, lost_weight = self._by_fate(self._weights.forget, self._weights.retain)
        along_lost = (along_combined - kept_weight * along_kept) / lost_weight
        return Moved(*self._by_fate(along_kept, along_lost))

    def shares(self, x: float, y: float) -> tuple[float, float]:
        """x·f + y·r as shares of the kept gradient and of g."""
        kept_weight, lost_weight = self._by_fate(self._weights.forget, self._weights.retain)
        kept_share, lost_share = self._by_fate(x, y)
        return kept_share - lost_share * kept_weight / lost_weight, lost_share / lost_weight

    def _by_fate(self, first: float, second: float) -> tuple[float, float]:
        """(Of f, of r) as (of the kept, of the overwritten) and back."""
        return (first, second) if self._over_retain else (second, first)
