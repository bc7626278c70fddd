"""WS: weighted scalarisation, the single-objective default of the literature (the paper's eq. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry.weighting import Weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.objectives import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks.task import Task

__all__ = ["WS"]


@dataclass(frozen=True, kw_only=True)
class WS(ForgettingDescent):
    """Descends w_f·L_f + w_r·L_r, whatever the angle between the two gradients.

    Attributes:
        forget_weight: w_f.
        retain_weight: w_r.
    """

    name: ClassVar[str] = "ws"
    title: ClassVar[str] = "WS"
    knob: ClassVar[str | None] = "forget_weight"
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 1e-3),
        "forget_weight": (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0),
    }

    forget_weight: float = 1.0
    retain_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("forget_weight", least=0)
        self._check("retain_weight", least=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Descend the weighted sum; the two gradients are taken apart only to show their conflict."""
        forgetting = objective(self.objective)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, Weights(self.forget_weight, self.retain_weight))
