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
from gradpivot.geometry.pivot import alone
from gradpivot.geometry.weighting import Weights

__all__ = ["PCGradWeighting", "Reduction"]

Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class PCGradWeighting:
    """PCGrad as a weighting; for weighted losses see :class:`gradpivot.geometry.LossWeighted`.

    Degenerate cases, times ½ for the mean: (0, 1) for f = 0, (1, 0) for r = 0, (1, 1) for parallel gradients; (0, 0)
    for opposed ones, whose projections vanish, and where both are zero.

    Attributes:
        reduction: ``sum`` of the two projected gradients (the paper's and TorchJD's), or their ``mean``.
    """

    reduction: Reduction = "sum"

    def __post_init__(self) -> None:
        if self.reduction not in get_args(Reduction):
            raise GradPivotError(f"reduction is {self.reduction!r}; choose one of sum, mean")

    def __call__(self, gram: Gram, /) -> Weights:
        """The weights (a, b) of the projected gradients' sum or mean."""
        summed = alone(gram) or _surgery(gram)
        return summed if self.reduction == "sum" else summed.scaled(0.5)


def _surgery(gram: Gram) -> Weights:
    if gram.fr < 0:
        return Weights(1 - gram.fr / gram.ff, 1 - gram.fr / gram.rr)
    return Weights(1.0, 1.0)
