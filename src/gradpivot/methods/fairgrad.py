"""FairGrad: the two losses share the progress by α-fairness (Ban & Ji, 2024); for two it is one equation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gradpivot.geometry import FairWeighting, LossWeighted
from gradpivot.methods.weighted import LossWeightedDescent

if TYPE_CHECKING:
    from gradpivot.geometry import Weighting

__all__ = ["FairGrad"]


@dataclass(frozen=True, kw_only=True)
class FairGrad(LossWeightedDescent):
    """Shares the progress by α-fairness (Ban & Ji, 2024).

    Attributes:
        alpha: The kind of fairness: 1 is proportional (Nash-MTL), 2 the least potential delay, ∞ max-min.
    """

    name: ClassVar[str] = "fairgrad"
    title: ClassVar[str] = "FairGrad"

    alpha: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", above=0)

    def weighting(self) -> Weighting:
        """The solution of G w = w^(−1/α) for the gradients of w_f·L_f and w_r·L_r."""
        return LossWeighted(FairWeighting(self.alpha), self.forget_weight, self.retain_weight)
