r"""The pivot: one conflict-free direction between two gradients, chosen by γ (CUP, eqs. 4 to 7).

With f = ∇L_f, r = ∇L_r, T = w_f·f + w_r·r and φ the angle between the two anchors, the paper's

    g_fid = T − (⟨T,f⟩/‖f‖²) f        g_eff = T − (⟨T,r⟩/‖r‖²) r
    g_γ   = cos(γφ) g_fid/‖g_fid‖ + sin(γφ) f/‖f‖        g_CUP = ‖T‖ g_γ

lies in the plane of f and r, where φ = π − α with α = ∠(f, r), and is therefore

    g_CUP = a·f + b·r    with    a = ‖T‖ cos((1−γ)φ) / (‖f‖ sin α)
                                 b = ‖T‖ cos(γφ)     / (‖r‖ sin α).

The second form is ours: it follows from sin(γφ) sin φ + cos(γφ) cos φ = cos((1−γ)φ). It needs the Gram
matrix alone, shows the symmetry (exchange f and r, replace γ by 1−γ), and subtracts nothing that could
cancel. No ε is added anywhere: near convergence an ε on squared norms turns the pivot into a step that hurts
what is kept.

Reference:
    Hwang & Lim (2025), "Controllable Machine Unlearning via Gradient Pivoting", arXiv:2510.19226.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from gradpivot.errors import GradPivotError, NonFiniteError, number_or_nan
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.weighting import Weights, check_loss_weights

__all__ = ["COLLINEAR", "Case", "PivotWeighting", "alone", "case_of", "check_gamma", "pivot_weights", "steered_weights"]

COLLINEAR = 1e-12
"""f and r count as collinear where D = FR − C² ≤ 1e-12·FR, that is sin α ≤ 1e-6.

Closer than that the Gram matrix has lost D to rounding (relative error 4e-4 at 1e-6 rad).
"""

_VANISHING = 1e-290
"""A squared norm below this counts as zero: f is shorter than 1e-145, and its inner products have lost their digits."""


class Case(Enum):
    """Which rule the pivot followed."""

    PIVOT = "pivot"
    """The general case."""
    NOTHING_TO_FORGET = "nothing to forget"
    """f = 0: descend r."""
    NOTHING_TO_RETAIN = "nothing to retain"
    """r = 0: descend f."""
    PARALLEL = "parallel"
    """No conflict at all: descend T."""
    OPPOSED = "opposed"
    """f = −k·r: Pareto-stationary. No conflict-free descent direction exists: do not move."""
    FLAT = "flat"
    """f = r = 0: stationary for both losses."""

    @property
    def is_stationary(self) -> bool:
        """Whether the point is Pareto-stationary: some convex combination of f and r is zero."""
        return self is not Case.PIVOT and self is not Case.PARALLEL


def check_gamma(gamma: float) -> float:
    """γ as a float in [0, 1].

    Raises:
        GradPivotError: if it is not.
    """
    value = number_or_nan(gamma)
    if not 0 <= value <= 1:
        raise GradPivotError(f"gamma is {gamma}; the unlearning intensity lies between 0 (keep) and 1 (forget)")
    return value


def case_of(gram: Gram) -> Case:
    """Which rule applies to this Gram matrix.

    Raises:
        NonFiniteError: if a gradient is not finite.
        GradPivotError: if the three numbers are not inner products of two vectors.
    """
    ff, rr, fr = gram
    if not gram.is_finite:
        raise NonFiniteError(f"a gradient is not finite: ⟨f,f⟩={ff}, ⟨r,r⟩={rr}, ⟨f,r⟩={fr}")
    # Cauchy-Schwarz, with room for Gram matrices that were accumulated in float32.
    longest = math.sqrt(max(ff, _VANISHING)) * math.sqrt(max(rr, _VANISHING))
    if ff < 0 or rr < 0 or abs(fr) > (1 + 1e-5) * longest:
        raise GradPivotError(
            f"⟨f,f⟩={ff}, ⟨r,r⟩={rr}, ⟨f,r⟩={fr} are not the inner products of two vectors; the order is ff, rr, fr"
        )
    if max(ff, rr) < _VANISHING:
        return Case.FLAT
    if min(ff, rr) < _VANISHING:
        return Case.NOTHING_TO_FORGET if ff < rr else Case.NOTHING_TO_RETAIN
    cosine = gram.cosine
    if (1 - cosine) * (1 + cosine) <= COLLINEAR:
        return Case.PARALLEL if cosine > 0 else Case.OPPOSED
    return Case.PIVOT


def alone(gram: Gram, forget: float = 1.0, retain: float = 1.0) -> Weights | None:
    """Weights in the degenerate cases, as most weightings define them; None if there are two gradients to combine.

    Args:
        gram: ⟨f,f⟩, ⟨r,r⟩ and ⟨f,r⟩.
        forget: The weight of f where r is zero.
        retain: The weight of r where f is zero.

    Returns:
        (0, retain) for f = 0, (forget, 0) for r = 0; (0, 0) for opposed gradients and where both vanish.

    Raises:
        NonFiniteError: if a number is NaN or infinite.
        GradPivotError: if the numbers are not a Gram matrix.
    """
    return _in_case(case_of(gram), forget, retain)


def _in_case(case: Case, forget: float, retain: float) -> Weights | None:
    """:func:`alone` in a known case."""
    match case:
        case Case.PIVOT | Case.PARALLEL:
            return None
        case Case.NOTHING_TO_FORGET:
            return Weights(0.0, retain)
        case Case.NOTHING_TO_RETAIN:
            return Weights(forget, 0.0)
        case Case.OPPOSED | Case.FLAT:
            return Weights(0.0, 0.0)


def pivot_weights(
    ff: float, rr: float, fr: float, gamma: float, *, forget_weight: float = 1.0, retain_weight: float = 1.0
) -> Weights:
    """The weights (a, b) with a·f + b·r = g_CUP.

    Args:
        ff: ⟨f,f⟩ of the forget gradient.
        rr: ⟨r,r⟩ of the retain gradient.
        fr: ⟨f,r⟩.
        gamma: The unlearning intensity γ: 0 moves orthogonally to f (keep), 1 orthogonally to r (forget).
        forget_weight: w_f of T = w_f·f + w_r·r. The weights change the length ‖T‖, never the direction.
        retain_weight: w_r.

    Returns:
        (a, b). In the degenerate cases: (0, w_r) for f = 0, (w_f, 0) for r = 0, (w_f, w_r) for parallel
        gradients, (0, 0) for opposed ones (Pareto-stationary) and where both vanish.

    Raises:
        NonFiniteError: if a number is NaN or infinite.
        GradPivotError: if γ is outside [0, 1], a loss weight is negative or not finite, or the numbers are not a Gram
            matrix.
    """
    gamma = check_gamma(gamma)
    check_loss_weights(forget_weight, retain_weight)
    gram = Gram(number_or_nan(ff), number_or_nan(rr), number_or_nan(fr))
    case = case_of(gram)
    if (answer := _in_case(case, forget_weight, retain_weight)) is not None:
        return answer
    if case is Case.PARALLEL:
        return Weights(forget_weight, retain_weight)
    sine, phi = _sine_and_phi(gram)
    length = gram.norm_of(forget_weight, retain_weight) / sine
    if not math.isfinite(length):
        raise NonFiniteError(f"‖{forget_weight:g}·f + {retain_weight:g}·r‖ is beyond float64; use smaller loss weights")
    return Weights(
        length * math.cos((1 - gamma) * phi) / gram.forget_norm, length * math.cos(gamma * phi) / gram.retain_norm
    )


def steered_weights(gram: Gram, intensity: float) -> Weights:
    r"""The pivot for a controller: forgets or recovers, with a norm that vanishes when nothing is left to gain.

    With t = γφ the pivot's direction has cos∠(g,f) = sin t and cos∠(g,r) = sin(t + α). It differs from
    :func:`pivot_weights` in two ways:

    - Angle. Beyond t = π/2, which γ < 1 reaches if the gradients do not conflict, a larger γ pulls *less* on L_f. Here
      t stops at π/2, so that a higher intensity never forgets less. A negative intensity turns to the other side of
      the fidelity anchor: L_f rises to first order, L_r does not (t ≥ −α).
    - Norm. It is that of T's projection, |‖f‖ sin t| + ‖r‖ sin(t + α), instead of ‖T‖: zero if neither loss can gain
      in this direction, as at Pareto-stationary points and, at intensity 0, when r vanishes.

    Args:
        gram: ⟨f,f⟩, ⟨r,r⟩ and ⟨f,r⟩.
        intensity: −1 … 1: 0 holds L_f and descends L_r, 1 is the strongest pull on L_f that spares L_r.

    Returns:
        (a, b). In the degenerate cases: (0, 1) for f = 0; (1, 0) for r = 0 if the intensity is positive, else (0, 0);
        parallel gradients give the share sin² t of T; (0, 0) for opposed ones and where both vanish.

    Raises:
        NonFiniteError: if a number is NaN or infinite.
        GradPivotError: if the intensity is outside [−1, 1] or the numbers are not a Gram matrix.
    """
    if not -1 <= number_or_nan(intensity) <= 1:
        raise GradPivotError(f"the intensity is {intensity}; it must be between -1 (recover) and 1 (forget)")
    case = case_of(gram)
    if (answer := _in_case(case, float(intensity > 0), 1.0)) is not None:
        return answer
    if case is Case.PARALLEL:
        share = math.sin(min(max(intensity, 0.0) * math.pi, math.pi / 2)) ** 2
        return Weights(share, share)
    sine, phi = _sine_and_phi(gram)
    alpha = math.pi - phi
    turn = min(max(intensity * phi, -min(alpha, math.pi / 2)), math.pi / 2)
    gain = gram.retain_norm * max(math.sin(turn + alpha), 0.0)
    length = (abs(gram.forget_norm * math.sin(turn)) + gain) / sine
    return Weights(length * math.cos(phi - turn) / gram.forget_norm, length * math.cos(turn) / gram.retain_norm)


def _sine_and_phi(gram: Gram) -> tuple[float, float]:
    cosine = gram.cosine
    sine = math.sqrt((1 - cosine) * (1 + cosine))
    return sine, math.atan2(sine, -cosine)


@dataclass(frozen=True)
class PivotWeighting:
    """The pivot at a fixed γ, as a weighting.

    Attributes:
        gamma: The unlearning intensity γ ∈ [0, 1].
        forget_weight: w_f in the length ‖w_f·f + w_r·r‖.
        retain_weight: w_r in that length.
    """

    gamma: float
    forget_weight: float = 1.0
    retain_weight: float = 1.0

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_loss_weights(self.forget_weight, self.retain_weight)

    def __call__(self, gram: Gram, /) -> Weights:
        """:func:`pivot_weights` of the Gram matrix."""
        return pivot_weights(*gram, self.gamma, forget_weight=self.forget_weight, retain_weight=self.retain_weight)
