"""EPO: exact Pareto optimal search, descent to a preferred ratio of the two losses (Mahapatra & Rajan, ICML 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Gram, Weights
from gradpivot.methods.preference import PreferenceDescent
from gradpivot.tasks import objective

__all__ = ["EPO"]

_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class EPO(PreferenceDescent):
    """Exact preference: descends until w_f·L_f = w_r·L_r, then both losses together (Mahapatra & Rajan, 2020).

    Away from the preferred ratio, a step reduces the non-uniformity of the weighted losses without raising the larger
    one. At the ratio, it reduces the sum of the losses without raising either. For two losses the linear program of the
    paper has a closed form.

    Attributes:
        tolerance: Non-uniformity, a Kullback–Leibler divergence in nats, up to which the losses count as at the ratio.
    """

    name: ClassVar[str] = "epo"
    title: ClassVar[str] = "EPO"

    tolerance: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("tolerance", gt=0)
        bound = objective(self.objective).lower_bound
        if bound is None or bound < 0:
            raise GradPivotError(f"EPO: the objective {self.objective} can be negative; use unlikelihood")

    def weights(self, gram: Gram, forget_loss: float, retain_loss: float) -> Weights:
        """Weights of f and r, which add up to one."""
        w_f, w_r = self.preference, 1 - self.preference
        weighted = max(w_f * forget_loss, _TINY), max(w_r * retain_loss, _TINY)
        shares = [loss / sum(weighted) for loss in weighted]
        logs = [math.log(2 * share) for share in shares]
        divergence = sum(share * log for share, log in zip(shares, logs, strict=True))
        if divergence <= self.tolerance:
            return _descend(gram)
        # The gradient of the divergence by the two losses, up to a factor.
        toward = w_f * (logs[0] - divergence), w_r * (logs[1] - divergence)
        if shares[0] > shares[1]:
            return _balance(gram, *toward)
        return Weights(*reversed(_balance(Gram(gram.rr, gram.ff, gram.fr), *reversed(toward))))


def _descend(gram: Gram) -> Weights:
    """Weights that reduce the sum of the losses most and raise neither to first order."""
    return _maximised((gram.ff + gram.fr, gram.fr + gram.rr), [(gram.fr, gram.rr, 0.0), (gram.ff, gram.fr, 0.0)])


def _balance(gram: Gram, larger: float, smaller: float) -> Weights:
    """Weights that bring the losses closest to the preferred ratio and don't raise the larger one to first order.

    Args:
        gram: The Gram matrix, with the larger weighted loss first.
        larger: Derivative of the non-uniformity by the larger loss, > 0.
        smaller: Its derivative by the other one, < 0.
    """
    # The step along the derivative itself, with weights of size one, and how much it reduces each loss.
    a, b = larger / (larger - smaller), smaller / (larger - smaller)
    gains = a * gram.ff + b * gram.fr, a * gram.fr + b * gram.rr
    constraints = [(gram.ff, gram.fr, 0.0)]
    if gains[1] <= 0:
        # The smaller loss may rise as much as along that step; not at all if that step reduces neither.
        constraints.insert(0, (gram.fr, gram.rr, gains[1] if gains[0] > 0 else 0.0))
    return _maximised(gains, constraints)


def _maximised(gains: tuple[float, float], constraints: Sequence[tuple[float, float, float]]) -> Weights:
    """Weights (1 − t, t) with the largest (1 − t)·gains[0] + t·gains[1], t in [0, 1].

    Args:
        gains: Value of each gradient.
        constraints: (p, q, h) for (1 − t)·p + t·q ≥ h. The last one holds if they contradict each other.
    """
    least, most = 0.0, 1.0
    for p, q, h in constraints:
        if q > p:
            least = min(max(least, (h - p) / (q - p)), 1.0)
            most = max(least, most)
        elif q < p:
            most = max(min(most, (p - h) / (p - q)), 0.0)
            least = min(least, most)
    t = (least + most) / 2 if gains[0] == gains[1] else most if gains[1] > gains[0] else least
    return Weights(1 - t, t)
