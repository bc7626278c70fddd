"""Weightings: a Gram matrix to two weights. Pure, immutable, no torch.

The abstraction behind GA (1, 0), weighted scalarisation (w_f, w_r), the pivot, PCGrad, DCGD, MGDA and others:
each is a rule that reads the three inner products and answers how much of each gradient to take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram

__all__ = ["WeightedSum", "Weighting", "Weights"]


class Weights(NamedTuple):
    """The step's direction a·f + b·r."""

    forget: float
    retain: float

    def scaled(self, factor: float) -> Weights:
        """Both weights times ``factor``: the same direction, another length."""
        return Weights(self.forget * factor, self.retain * factor)


@runtime_checkable
class Weighting(Protocol):
    """Anything that turns a Gram matrix into two weights."""

    def __call__(self, gram: Gram, /) -> Weights:
        """The weights (a, b) of the step a·f + b·r."""
        ...


@dataclass(frozen=True)
class WeightedSum:
    """Weighted scalarisation: the gradient of w_f·L_f + w_r·L_r, whatever the angle."""

    forget: float = 1.0
    retain: float = 1.0

    def __post_init__(self) -> None:
        for name, weight in (("forget", self.forget), ("retain", self.retain)):
            if not (math.isfinite(weight) and weight >= 0):
                raise GradPivotError(f"the {name} weight is {weight}; it must be finite and ≥ 0")

    def __call__(self, gram: Gram, /) -> Weights:
        """(w_f, w_r)."""
        return Weights(self.forget, self.retain)
