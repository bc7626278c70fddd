r"""Dual cone gradient descent: a direction inside K* = {v : ⟨v,f⟩ ≥ 0, ⟨v,r⟩ ≥ 0}, in three variants.

With F = ⟨f,f⟩, R = ⟨r,r⟩, C = ⟨f,r⟩, T = f + r, f̂ = f/‖f‖ and r̂ = r/‖r‖

    center   the projection of T on f̂ + r̂, always
    avg      T inside K*; outside the mean of its projections on the planes orthogonal to r and to f,
             ½[(f − (C/R) r) + (r − (C/F) f)]
    proj     T inside K*; outside its projection on K*: f − (C/R) r if ⟨T,r⟩ < 0, r − (C/F) f if ⟨T,f⟩ < 0

Since ⟨T, f̂ + r̂⟩ = (‖f‖ + ‖r‖)(1 + cos α) and ‖f̂ + r̂‖² = 2(1 + cos α), the first is

    g = ½(‖f‖ + ‖r‖)(f̂ + r̂) = ½(1 + ‖r‖/‖f‖) f + ½(1 + ‖f‖/‖r‖) r,

where nothing cancels at any angle. It has the direction of the pivot at γ = ½, and is ConFIG (Liu, Chu & Thuerey,
2024) for two losses. T is outside K* only if the gradients conflict *and* one is shorter than −cos α of the other, so
``avg`` and ``proj`` leave milder conflicts alone. No ε is added.

Reference:
    Hwang & Lim (2024), "Dual Cone Gradient Descent for Training Physics-Informed Neural Networks", arXiv:2409.18426.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import alone
from gradpivot.geometry.weighting import Weights

__all__ = ["DualConeWeighting", "Variant"]

Variant = Literal["center", "avg", "proj"]


@dataclass(frozen=True)
class DualConeWeighting:
    """Dual cone gradient descent as a weighting; for weighted losses see :class:`gradpivot.geometry.LossWeighted`.

    Degenerate cases: (0, 1) for f = 0, (1, 0) for r = 0; parallel gradients give the vector f + r; (0, 0) for opposed
    ones (K* then holds no descent direction) and where both vanish.

    Attributes:
        variant: ``center``, ``avg`` or ``proj``. With ``center`` loss weights change the length, never the direction.
    """

    variant: Variant = "center"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise GradPivotError(f"variant is {self.variant!r}; choose one of {', '.join(get_args(Variant))}")

    def __call__(self, gram: Gram, /) -> Weights:
        """The weights (a, b) of a direction inside the dual cone."""
        return alone(gram) or _VARIANTS[self.variant](gram)


def _center(gram: Gram) -> Weights:
    ratio = gram.retain_norm / gram.forget_norm
    return Weights((1 + ratio) / 2, (1 + 1 / ratio) / 2)


def _avg(gram: Gram) -> Weights:
    ff, rr, fr = gram
    if ff + fr >= 0 and rr + fr >= 0:
        return Weights(1.0, 1.0)
    return Weights((1 - fr / ff) / 2, (1 - fr / rr) / 2)


def _proj(gram: Gram) -> Weights:
    # A sum of two floats has the right sign, so the choice of the face is exact for the given Gram matrix.
    ff, rr, fr = gram
    if rr + fr < 0:
        return Weights(1.0, -fr / rr)
    if ff + fr < 0:
        return Weights(-fr / ff, 1.0)
    return Weights(1.0, 1.0)


_VARIANTS: dict[str, Callable[[Gram], Weights]] = {"center": _center, "avg": _avg, "proj": _proj}
