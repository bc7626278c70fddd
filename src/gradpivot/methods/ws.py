"""WS: weighted scalarisation, the standard baseline (eq. 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gradpivot.geometry import WeightedSum
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["WS"]


@dataclass(frozen=True, kw_only=True)
class WS(LossWeightedDescent):
    """Weighted sum of the two losses, w_f·L_f + w_r·L_r."""

    name: ClassVar[str] = "ws"
    title: ClassVar[str] = "WS"

    def rule(self) -> WeightedSum:
        """(1, 1); the gradients are computed separately only to record their conflict."""
        return WeightedSum()
