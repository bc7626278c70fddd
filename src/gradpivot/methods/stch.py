"""STCH: smooth Tchebycheff scalarisation of the two losses (Lin et al., ICML 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Gram, Weights
from gradpivot.methods.preference import PreferenceDescent
from gradpivot.tasks import objective

__all__ = ["STCH"]


@dataclass(frozen=True, kw_only=True)
class STCH(PreferenceDescent):
    """Smooth Tchebycheff scalarisation under a preference (Lin et al., 2024).

    Descends μ·log Σ exp(w_i·(L_i − z_i)/μ) with w_f the preference and w_r = 1 − w_f. The loss with the larger
    w_i·(L_i − z_i) gets the larger weight.

    Attributes:
        smoothing: Temperature μ. Towards 0 only the worse loss counts; a large μ gives a weighted sum.
        forget_ideal: Ideal value z_f of the forget loss; if unset, the lower bound of the objective.
        retain_ideal: Ideal value z_r of the retain loss.
    """

    name: ClassVar[str] = "stch"
    title: ClassVar[str] = "STCH"

    smoothing: float = 0.1
    forget_ideal: float | None = None
    retain_ideal: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("smoothing", gt=0)
        self._check("retain_ideal")
        if self.forget_ideal is not None:
            self._check("forget_ideal")
        elif objective(self.objective).lower_bound is None:
            raise GradPivotError(
                f"STCH: the objective {self.objective} has no lower bound; set forget_ideal or use unlikelihood"
            )

    def weights(self, gram: Gram, forget_loss: float, retain_loss: float) -> Weights:
        """The derivative of the scalarisation by the two losses: w_i times a softmax of the scaled losses."""
        w_f, w_r = self.preference, 1 - self.preference
        forget = w_f * (forget_loss - self._forget_ideal) / self.smoothing
        retain = w_r * (retain_loss - self.retain_ideal) / self.smoothing
        # From the larger one, so that neither exponential overflows.
        most = max(forget, retain)
        p_f, p_r = math.exp(forget - most), math.exp(retain - most)
        return Weights(w_f * p_f / (p_f + p_r), w_r * p_r / (p_f + p_r))

    @property
    def _forget_ideal(self) -> float:
        bound = objective(self.objective).lower_bound if self.forget_ideal is None else self.forget_ideal
        assert bound is not None
        return bound
