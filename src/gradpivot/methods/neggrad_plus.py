"""NegGrad+: descent on the retain set with ascent on the forget set (Kurmanji et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["NegGradPlus"]


@dataclass(frozen=True, kw_only=True)
class NegGradPlus(Descent):
    """Weighted sum β·CE(D_r) − (1 − β)·CE(D_f) (Kurmanji et al., 2023).

    Attributes:
        beta: Weight β of the retain loss; 1 is fine-tuning.
    """

    name: ClassVar[str] = "neggrad_plus"
    title: ClassVar[str] = "NegGrad+"
    knob: ClassVar[str | None] = "beta"

    lr: float = 1e-2
    beta: float = 0.97

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("beta", ge=0, le=1)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Descend both losses with fixed weights."""
        ascent = objective("negative_ce")
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, ascent),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, Weights(1 - self.beta, self.beta))
