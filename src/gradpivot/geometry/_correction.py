r"""Correct a step after the optimiser: the nearest step that raises neither loss to first order.

The pivot's promise, ⟨Δθ,f⟩ ≤ 0 and ⟨Δθ,r⟩ ≤ 0, is about what is handed to the optimiser. Momentum adds old gradients,
Adam another metric, weight decay a pull to zero. The projection of what they did on the cone that keeps the promise,

    min ‖x·f + y·r‖   subject to   ⟨Δθ + x·f + y·r, f⟩ ≤ 0   and   ⟨Δθ + x·f + y·r, r⟩ ≤ 0,

needs Δθ's two inner products and the Gram matrix: a quadratic programme in two numbers, solved by looking at which of
the two constraints bind (Karush-Kuhn-Tucker: x, y ≤ 0, and zero where a constraint has slack).
"""

from __future__ import annotations

from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import COLLINEAR
from gradpivot.geometry.weighting import Weights

__all__ = ["correction"]


def correction(
    gram: Gram, along_forget: float, along_retain: float, *, forget: bool = True, retain: bool = True
) -> Weights:
    """The smallest x·f + y·r to add to a step so that it raises neither loss to first order.

    Args:
        gram: ⟨f,f⟩, ⟨r,r⟩ and ⟨f,r⟩.
        along_forget: ⟨Δθ,f⟩ of the optimiser's step.
        along_retain: ⟨Δθ,r⟩ of the optimiser's step.
        forget: Whether to constrain L_f; a recovery step is meant to raise it.
        retain: Whether to constrain L_r.

    Returns:
        (x, y), both ≤ 0; (0, 0) for a step that keeps the promise. Opposed gradients leave the part of the step that is
        orthogonal to both.
    """
    bad_forget = forget and along_forget > 0 and gram.ff > 0
    bad_retain = retain and along_retain > 0 and gram.rr > 0
    if not (bad_forget or bad_retain):
        return Weights(0.0, 0.0)
    alone_forget = Weights(-along_forget / gram.ff, 0.0) if bad_forget else None
    alone_retain = Weights(0.0, -along_retain / gram.rr) if bad_retain else None
    # One correction is enough if it does not violate the other constraint.
    if alone_forget and not (retain and along_retain + alone_forget.forget * gram.fr > 0):
        return alone_forget
    if alone_retain and not (forget and along_forget + alone_retain.retain * gram.fr > 0):
        return alone_retain
    determinant = gram.ff * gram.rr - gram.fr**2
    if determinant <= COLLINEAR * gram.ff * gram.rr:
        # Collinear gradients: correcting one corrects the other too, or nothing can.
        return alone_forget or alone_retain or Weights(0.0, 0.0)
    return Weights(
        (gram.fr * along_retain - gram.rr * along_forget) / determinant,
        (gram.fr * along_forget - gram.ff * along_retain) / determinant,
    )
