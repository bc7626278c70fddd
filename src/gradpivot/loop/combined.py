"""The step direction, stored in the memory of one of the two gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.geometry import Weights, combine
from gradpivot.loop.outcome import FirstOrderChange

if TYPE_CHECKING:
    from gradpivot.loop.gradients import Gradients
    from gradpivot.runtime import Gradient

__all__ = ["Combined"]


class Combined:
    """g = a·f + b·r, written over the gradient that contributes more; the other one is kept.

    Products with the overwritten gradient are recovered from g and the kept one. This divides by the larger
    contribution's weight, so that no precision is lost.

    Args:
        gradients: f and r; one of them is overwritten.
        weights: (a, b); not both zero.
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

    def first_order_change(self, along_kept: float, along_combined: float) -> FirstOrderChange:
        """⟨Δθ,f⟩ and ⟨Δθ,r⟩, from the products of Δθ with the kept gradient and with g."""
        kept_weight, lost_weight = self._swap_if_needed(self._weights.forget, self._weights.retain)
        along_lost = (along_combined - kept_weight * along_kept) / lost_weight
        return FirstOrderChange(*self._swap_if_needed(along_kept, along_lost))

    def shares(self, x: float, y: float) -> tuple[float, float]:
        """Coefficients of the kept gradient and of g that give x·f + y·r."""
        kept_weight, lost_weight = self._swap_if_needed(self._weights.forget, self._weights.retain)
        kept_share, lost_share = self._swap_if_needed(x, y)
        return kept_share - lost_share * kept_weight / lost_weight, lost_share / lost_weight

    def _swap_if_needed(self, first: float, second: float) -> tuple[float, float]:
        """Convert between the orders (f, r) and (kept, overwritten)."""
        return (first, second) if self._over_retain else (second, first)
