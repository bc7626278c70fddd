"""FairGrad: α-fair weighting of the losses (Ban & Ji, 2024); one scalar equation for two losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradpivot.geometry import FairWeighting
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["FairGrad"]


@dataclass(frozen=True, kw_only=True)
class FairGrad(LossWeightedDescent):
    """α-fair weighting of the two losses (Ban & Ji, 2024).

    Attributes:
        alpha: Type of fairness: 1 is proportional (Nash-MTL), 2 minimum potential delay, ∞ max-min.
    """

    name: ClassVar[str] = "fairgrad"
    title: ClassVar[str] = "FairGrad"

    alpha: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", gt=0)

    def rule(self) -> FairWeighting:
        """The solution of G w = w^(−1/α)."""
        return FairWeighting(self.alpha)
