"""WS: weighted scalarisation, the single-objective default of the literature (the paper's eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradpivot.geometry import WeightedSum
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["WS"]


@dataclass(frozen=True, kw_only=True)
class WS(LossWeightedDescent):
    """Descends w_f·L_f + w_r·L_r, whatever the angle between the two gradients."""

    name: ClassVar[str] = "ws"
    title: ClassVar[str] = "WS"

    def rule(self) -> WeightedSum:
        """(1, 1); the two gradients are taken apart only to show their conflict."""
        return WeightedSum()
