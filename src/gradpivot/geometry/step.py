"""Description of a step: weights, norms, angles and case."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gradpivot.errors import NonFiniteError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import Case, case_of
from gradpivot.geometry.weighting import Weights

__all__ = ["PivotStep", "describe", "limited"]


@dataclass(frozen=True, kw_only=True)
class PivotStep:
    """Result of one backward pass.

    Attributes:
        gamma: γ, or None with another weighting.
        cosine: cos α between the two gradients; NaN if one of them vanishes.
        phi: φ = π − α, the angle between the two anchors in radians; NaN if a gradient vanishes.
        forget_weight: a of the written gradient a·f + b·r, after limiting the norm.
        retain_weight: b of the written gradient.
        forget_norm: ‖f‖.
        retain_norm: ‖r‖.
        step_norm: ‖a·f + b·r‖ as written.
        conflict: Whether the gradients conflict (cos α < 0).
        pareto_stationary: Whether no conflict-free descent direction exists; opposed gradients then leave
            ``.grad`` at zero.
        case: Which rule was applied.
        overflow: Whether a scaled gradient overflowed, so that the GradScaler will skip this step.
    """

    gamma: float | None
    cosine: float
    phi: float
    forget_weight: float
    retain_weight: float
    forget_norm: float
    retain_norm: float
    step_norm: float
    conflict: bool
    pareto_stationary: bool
    case: Case | None
    overflow: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary; None where a number is not defined."""
        numbers = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }
        return {**numbers, "case": self.case.value if self.case else None}


def describe(gram: Gram, weights: Weights, norm: float, gamma: float | None = None) -> PivotStep:
    """Describe a step with these weights."""
    cosine, case = gram.cosine, case_of(gram)
    return PivotStep(
        gamma=gamma,
        cosine=cosine,
        phi=gram.phi,
        forget_weight=weights.forget,
        retain_weight=weights.retain,
        forget_norm=gram.forget_norm,
        retain_norm=gram.retain_norm,
        step_norm=norm,
        conflict=cosine < 0,
        pareto_stationary=case.is_stationary,
        case=case,
    )


def limited(weights: Weights, gram: Gram, max_norm: float | None) -> tuple[Weights, float]:
    """Scale the weights down so that ‖a·f + b·r‖ ≤ ``max_norm``; return them with the resulting norm.

    Raises:
        NonFiniteError: if ‖a·f + b·r‖ is beyond float64.
    """
    norm = gram.norm_of(*weights)
    if not math.isfinite(norm):
        raise NonFiniteError(f"the step with weights {tuple(weights)} overflows float64; use smaller ones")
    if max_norm is None or norm <= max_norm:
        return weights, norm
    return weights.scaled(max_norm / norm), max_norm
