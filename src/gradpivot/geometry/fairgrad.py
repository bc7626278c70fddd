r"""α-fair weights of two losses: FairGrad's equation, reduced to one unknown.

FairGrad takes the weights w > 0 with G w = w^(−1/α) (element by element), where G is the Gram matrix. In units of the
two lengths, with c the cosine, p = 1/α and ρ = ‖r‖/‖f‖, the two equations for s = b‖r‖/(a‖f‖) are

    a^(1+p) F (1 + c s) = 1    and    s^p q = ρ^(p−1)    with    q = (c + s)/(1 + c s):

q is the gain of r over that of f, each by the length of its gradient. The second equation is the quotient of the two.
Both gains have to be positive, which for c < 0 leaves s between −c and −1/c. There p log s + log q rises with s from −∞
to ∞, so that there is one solution, and only one, unless the gradients are opposed.

For nearly opposed gradients s is 1 up to rounding and the gains are lost. q is not: it is then the unknown, and

    s = (q + k)/(1 + k q),    1 + c s = (1 − k²)/(1 + k q)    with    k = −c > 0

subtract nothing that cancels. The map is the same as that from s to q for c = k ≥ 0.

Reference:
    Ban & Ji (2024), "Fair Resource Allocation in Multi-Task Learning", arXiv:2402.15638, eq. 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import alone
from gradpivot.geometry.weighting import Weights

__all__ = ["FairWeighting"]


@dataclass(frozen=True)
class FairWeighting:
    """The weights (a, b) with G (a, b) = (a^(−1/α), b^(−1/α)).

    If one gradient is zero, the solution for the other alone, F a = a^(−1/α). (0, 0) for opposed gradients, where one
    gains what the other loses, and if both vanish.

    Attributes:
        alpha: Type of fairness: 1 proportional (Nash-MTL), 2 minimum potential delay, ∞ max-min.
    """

    alpha: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise GradPivotError(f"alpha is {self.alpha}; it must be finite and > 0")

    def __call__(self, gram: Gram, /) -> Weights:
        """The α-fair weights.

        Raises:
            NonFiniteError: if a number is NaN or infinite.
            GradPivotError: if the numbers are not a Gram matrix.
        """
        if (answer := alone(gram)) is not None:
            return Weights(answer.forget and self._alone(gram.ff), answer.retain and self._alone(gram.rr))
        # The one with the larger share first: then s ≤ 1, and no power of it overflows.
        if (1 - self.alpha) * (math.log(gram.rr) - math.log(gram.ff)) > 0:
            b, a = self._shared(Gram(gram.rr, gram.ff, gram.fr))
        else:
            a, b = self._shared(gram)
        return Weights(a, b)

    def _alone(self, square: float) -> float:
        """The a with a^(1+1/α)·square = 1."""
        return float(square ** (-self.alpha / (1 + self.alpha)))

    def _shared(self, gram: Gram) -> tuple[float, float]:
        """(a, b) for gradients of which the first has the larger share, s ≤ 1."""
        ratio, gain = self._ratio_and_gain(gram)
        first = self._alone(gram.ff) * self._alone(gain)
        return first, first * ratio * (gram.forget_norm / gram.retain_norm)

    def _ratio_and_gain(self, gram: Gram) -> tuple[float, float]:
        """The ratio s and the gain 1 + c·s."""
        cosine, power = gram.cosine, 1 / self.alpha
        k = abs(cosine)
        # log of ρ^(p−1); ≤ 0 by the order of the two.
        wanted = (power - 1) * (math.log(gram.rr) - math.log(gram.ff)) / 2
        # The map moves nothing farther from 0, which gives the bounds.
        if cosine >= 0:
            x = _root(lambda x: power * x + _mapped(x, k) - wanted, wanted / power, wanted / (1 + power))
            ratio = math.exp(x)
            return ratio, 1 + k * ratio
        x = _root(lambda x: x + power * _mapped(x, k) - wanted, wanted, wanted / (1 + power))
        return math.exp(_mapped(x, k)), (1 - k) * (1 + k) / (1 + k * math.exp(x))


def _mapped(x: float, k: float) -> float:
    """log((z + k)/(1 + k z)) for z = eˣ ≤ 1 and 0 ≤ k ≤ 1: between x and 0, and rising with x."""
    z = math.exp(x)
    if k > 0.5:
        # Near to 0 the first digits of the fraction are all nines.
        return math.log1p((z - 1) * (1 - k) / (1 + k * z))
    return x if z + k == z else math.log((z + k) / (1 + k * z))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero, by bisection to the last digit: some 60 halvings."""
    while low < (middle := low + (high - low) / 2) < high:
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return high
