"""GA: gradient ascent on the forget set alone (Golatkar et al., 2020; Thudi et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import LR_GRID, ForgettingDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["GA"]


@dataclass(frozen=True, kw_only=True)
class GA(ForgettingDescent):
    """Gradient ascent on the forget set, without a retain loss (Golatkar et al., 2020; Thudi et al., 2022)."""

    name: ClassVar[str] = "ga"
    title: ClassVar[str] = "GA"
    knob: ClassVar[str | None] = "lr"
    needs_retain: ClassVar[bool] = False
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"lr": LR_GRID}

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Descend L_f on each forget batch."""
        forgetting = objective(self.objective)
        for batch in loop.forget_batches(model, task, split, self):
            gradients = loop.gradients(forget=partial(task.forget_loss, model, batch.data, forgetting))
            loop.step(gradients, Weights(1.0, 0.0))
