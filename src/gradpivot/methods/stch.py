"""STCH: smooth Tchebycheff scalarisation of the two losses (Lin et al., ICML 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent, ForgettingDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["STCH"]


@dataclass(frozen=True, kw_only=True)
class STCH(ForgettingDescent):
    """Smooth Tchebycheff scalarisation under a preference (Lin et al., 2024).

    Descends μ·log Σ exp(w_i·(L_i − z_i)/μ) with w_f the preference and w_r = 1 − w_f. The loss with the larger
    w_i·(L_i − z_i) gets the larger weight.

    Attributes:
        preference: Weight w_f of forgetting, in (0, 1); retaining has 1 − w_f.
        smoothing: Temperature μ. Towards 0 only the worse loss counts; a large μ gives a weighted sum.
        forget_ideal: Ideal value z_f of the forget loss; if unset, the lower bound of the objective.
        retain_ideal: Ideal value z_r of the retain loss.
    """

    name: ClassVar[str] = "stch"
    title: ClassVar[str] = "STCH"
    knob: ClassVar[str | None] = "preference"
    # Not −CE, which has no ideal value.
    paper: ClassVar[Mapping[str, Any]] = Descent.paper
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-3, 1e-2),
        "preference": (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    lr: float = 1e-2
    preference: float = 0.5
    smoothing: float = 0.1
    forget_ideal: float | None = None
    retain_ideal: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("preference", gt=0, lt=1)
        self._check("smoothing", gt=0)
        self._check("retain_ideal")
        if self.forget_ideal is not None:
            self._check("forget_ideal")
        elif objective(self.objective).lower_bound is None:
            raise GradPivotError(
                f"STCH: the objective {self.objective} has no lower bound; set forget_ideal or use unlikelihood"
            )

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Take one weighted step per batch."""
        forgetting = objective(self.objective)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            assert gradients.forget_loss is not None
            assert gradients.retain_loss is not None
            loop.step(gradients, self.weights(gradients.forget_loss, gradients.retain_loss))

    def weights(self, forget_loss: float, retain_loss: float) -> Weights:
        """The derivative of the scalarisation by the two losses: w_i times a softmax of the scaled losses.

        It depends on the losses' values, which the Gram matrix does not hold.
        """
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
