"""PCGrad: gradient surgery (Yu et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradpivot.geometry import PCGradWeighting
from gradpivot.methods.weighted import LossWeightedDescent

__all__ = ["PCGrad"]


@dataclass(frozen=True, kw_only=True)
class PCGrad(LossWeightedDescent):
    """Gradient surgery: project each gradient onto the other's normal plane where they conflict (Yu et al., 2020).

    Attributes:
        reduction: Reduction of the two projected gradients: sum (as in the paper and TorchJD) or mean.
    """

    name: ClassVar[str] = "pcgrad"
    title: ClassVar[str] = "PCGrad"

    reduction: Literal["sum", "mean"] = "sum"

    def rule(self) -> PCGradWeighting:
        """(1 − C/F, 1 − C/R) under conflict, (1, 1) otherwise."""
        return PCGradWeighting(self.reduction)
