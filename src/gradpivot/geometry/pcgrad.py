r"""PCGrad for two losses: project each gradient off the other where they conflict, then add.

With F = ⟨f,f⟩, R = ⟨r,r⟩ and C = ⟨f,r⟩ < 0

    f' = f − (C/R) r        r' = r − (C/F) f        g = f' + r' = (1 − C/F) f + (1 − C/R) r

and g = f + r where C ≥ 0. With more than two losses the result depends on a random order; with two it does not.
Nothing cancels in the weights, because −C/F and −C/R are positive; no ε is added.

Reference:
    Yu, Kumar, Gupta, Levine, Hausman & Finn (2020), "Gradient Surgery for Multi-Task Learning", Algorithm 1,
    arXiv:2001.06782.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import Case, case_of
from gradpivot.geometry.weighting import LossWeighted, Weights, check_loss_weights

__all__ = ["PCGradWeighting", "Reduction", "pcgrad_weights"]

Reduction = Literal["sum", "mean"]


def pcgrad_weights(
    ff: float,
    rr: float,
    fr: float,
    *,
    reduction: Reduction = "sum",
    forget_weight: float = 1.0,
    retain_weight: float = 1.0,
) -> Weights:
    """The weights (a, b) of the projected gradients' sum or mean.

    Args:
        ff: ⟨f,f⟩ of the forget gradient.
        rr: ⟨r,r⟩ of the retain gradient.
        fr: ⟨f,r⟩.
        reduction: ``sum`` (the paper's and TorchJD's) or ``mean``, half of it.
        forget_weight: w_f; the rule is applied to w_f·f and w_r·r.
        retain_weight: w_r.

    Returns:
        (a, b). In the degenerate cases, times ½ for the mean: (0, w_r) for f = 0, (w_f, 0) for r = 0, (w_f, w_r) for
        parallel gradients; (0, 0) for opposed ones, whose projections vanish, and where both are zero.

    Raises:
        NonFiniteError: if a number is NaN or infinite.
        GradPivotError: if the numbers are no Gram matrix, or a loss weight is negative.
    """
    weighting = PCGradWeighting(reduction, forget_weight, retain_weight)
    return weighting(Gram(float(ff), float(rr), float(fr)))


@dataclass(frozen=True)
class PCGradWeighting:
    """PCGrad as a weighting.

    Attributes:
        reduction: ``sum`` or ``mean`` of the two projected gradients.
        forget_weight: w_f; the rule is applied to w_f·f and w_r·r.
        retain_weight: w_r.
    """

    reduction: Reduction = "sum"
    forget_weight: float = 1.0
    retain_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.reduction not in get_args(Reduction):
            raise GradPivotError(f"reduction is {self.reduction!r}; choose one of sum, mean")
        check_loss_weights(self.forget_weight, self.retain_weight)

    def __call__(self, gram: Gram, /) -> Weights:
        """:func:`pcgrad_weights` of the Gram matrix."""
        summed = LossWeighted(_surgery, self.forget_weight, self.retain_weight)(gram)
        return summed if self.reduction == "sum" else summed.scaled(0.5)


def _surgery(gram: Gram, /) -> Weights:
    case = case_of(gram)
    if case is Case.OPPOSED or case is Case.FLAT:
        return Weights(0.0, 0.0)
    if gram.fr < 0:
        return Weights(1 - gram.fr / gram.ff, 1 - gram.fr / gram.rr)
    # A zero gradient has no say; its weight would only count in the records.
    return Weights(float(gram.ff > 0), float(gram.rr > 0))
