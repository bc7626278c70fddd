"""DCGD: dual cone gradient descent (Hwang & Lim, 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradpivot.geometry import DualConeWeighting
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["DCGD"]


@dataclass(frozen=True, kw_only=True)
class DCGD(LossWeightedDescent):
    """Dual cone gradient descent: move the total gradient into the conflict-free cone (Hwang & Lim, 2024).

    Attributes:
        variant: Projection of the total gradient: center (onto the cone's axis), proj (onto the cone) or avg (mean of
            the projections onto its two faces). proj and avg leave a gradient inside the cone unchanged.
    """

    name: ClassVar[str] = "dcgd"
    title: ClassVar[str] = "DCGD"

    variant: Literal["center", "avg", "proj"] = "center"

    def rule(self) -> DualConeWeighting:
        """The chosen variant."""
        return DualConeWeighting(self.variant)
