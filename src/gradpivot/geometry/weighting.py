"""Weightings: functions from a Gram matrix to two weights. Pure, immutable, no torch.

The abstraction behind GA (1, 0), weighted scalarisation (w_f, w_r), the pivot, PCGrad, DCGD, MGDA and others:
each maps the three inner products to the weights of the two gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from gradpivot.errors import GradPivotError, number_or_nan
from gradpivot.geometry.gramian import Gram

__all__ = ["LossWeighted", "WeightedSum", "Weighting", "Weights", "check_loss_weights"]


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
    """Weighted scalarisation: the gradient of w_f·L_f + w_r·L_r."""

    forget: float = 1.0
    retain: float = 1.0

    def __post_init__(self) -> None:
        check_loss_weights(self.forget, self.retain)

    def __call__(self, gram: Gram, /) -> Weights:
        """(w_f, w_r)."""
        return Weights(self.forget, self.retain)


@dataclass(frozen=True)
class LossWeighted:
    """Apply another weighting to the losses w_f·L_f and w_r·L_r.

    Attributes:
        rule: The weighting to apply.
        forget: w_f.
        retain: w_r.
    """

    rule: Weighting
    forget: float = 1.0
    retain: float = 1.0

    def __post_init__(self) -> None:
        check_loss_weights(self.forget, self.retain)

    def __call__(self, gram: Gram, /) -> Weights:
        """The rule's weights of w_f·f and w_r·r, as weights of f and r."""
        w_f, w_r = self.forget, self.retain
        a, b = self.rule(Gram(w_f * w_f * gram.ff, w_r * w_r * gram.rr, w_f * w_r * gram.fr))
        return Weights(w_f * a, w_r * b)


def check_loss_weights(forget: float, retain: float) -> None:
    """Check that both weights are finite and ≥ 0.

    Raises:
        GradPivotError: if one is not.
    """
    for name, weight in (("forget", forget), ("retain", retain)):
        if not 0 <= number_or_nan(weight) < math.inf:
            raise GradPivotError(f"the {name} weight is {weight!r}; it must be finite and ≥ 0")
