"""DCGD: dual cone gradient descent, a step that conflicts with neither loss (Hwang & Lim, 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradpivot.geometry import DualConeWeighting
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["DCGD"]


@dataclass(frozen=True, kw_only=True)
class DCGD(LossWeightedDescent):
    """Moves the total gradient into the cone of directions that conflict with neither loss.

    Attributes:
        variant: ``center`` projects it on the middle of the cone, where w_f and w_r change the length only; ``avg``
            takes the mean of its projections on the cone's two planes, and ``proj`` its nearest point, both only where
            it is outside.
    """

    name: ClassVar[str] = "dcgd"
    title: ClassVar[str] = "DCGD"

    variant: Literal["center", "avg", "proj"] = "center"

    def rule(self) -> DualConeWeighting:
        """The chosen variant."""
        return DualConeWeighting(self.variant)
