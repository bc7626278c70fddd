r"""The Nash bargaining solution of two losses, in closed form.

Nash-MTL takes the weights α > 0 with G α = 1/α (element by element), where G is the Gram matrix. For two losses

    a (F a + C b) = 1 = b (C a + R b)   ⇒   F a² = R b²   ⇒   a = 1 / (‖f‖ √(1 + cos α)),   b = 1 / (‖r‖ √(1 + cos α)):

the direction of f/‖f‖ + r/‖r‖, which is that of the pivot at γ = ½ and of DCGD-center, always of the length √2. Neither
depends on the scale of the losses. No solver, no state and no ε is needed.

Reference:
    Navon, Shamsian, Achituve, Maron, Kawaguchi, Chechik & Fetaya (2022), "Multi-Task Learning as a Bargaining Game",
    arXiv:2202.01017.
"""

from __future__ import annotations

import math

from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import alone
from gradpivot.geometry.weighting import Weights

__all__ = ["nash_weights"]


def nash_weights(gram: Gram, /) -> Weights:
    """The bargaining solution (a, b) with a·⟨f,g⟩ = b·⟨r,g⟩ = 1 for g = a·f + b·r.

    Returns:
        (a, b). If one gradient is zero, the other one, normalised. (0, 0) for opposed gradients, which have no common
        gain, and if both vanish.

    Raises:
        NonFiniteError: if a number is NaN or infinite.
        GradPivotError: if the numbers are not a Gram matrix.
    """
    if (answer := alone(gram)) is not None:
        # Of length one: a weight of 0 stays one.
        return Weights(answer.forget and 1 / gram.forget_norm, answer.retain and 1 / gram.retain_norm)
    share = math.sqrt(1 + gram.cosine)
    return Weights(1 / (gram.forget_norm * share), 1 / (gram.retain_norm * share))
