"""RL: random labels on the forget set (Golatkar et al., 2020; Graves et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.geometry import Weights
from gradpivot.methods.method import LR_GRID, Descent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["RL"]


@dataclass(frozen=True, kw_only=True)
class RL(Descent):
    """Random labels on the forget set, cross-entropy on the retain set (Golatkar et al., 2020; Graves et al., 2021).

    Labels are uniform over all classes and drawn again every epoch.

    Attributes:
        order: paired (both losses in every step) or sequential (per epoch the forget set, then the whole retain set, as
            in the original).
    """

    name: ClassVar[str] = "rl"
    title: ClassVar[str] = "RL"
    knob: ClassVar[str | None] = "lr"
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"lr": LR_GRID}

    order: Literal["paired", "sequential"] = "paired"

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train on random labels for D_f and true labels for D_r."""
        if self.order == "paired":
            self._paired(model, task, split, loop)
        else:
            self._sequential(model, task, split, loop)

    def _paired(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        relabelled = objective("random_label")
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, relabelled),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, Weights(1.0, 1.0))

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of every batch; a sequential epoch covers both sets."""
        from gradpivot.loop import sequential_plan

        if self.order != "sequential":
            return super().gradients(split)
        plan = sequential_plan(split, self, 0)
        return plan.total / plan.per_epoch * (len(split.forget_indices) + len(split.retain_indices))

    def _sequential(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        relabelled = objective("random_label")
        for batch in loop.sequential_batches(model, task, split, self):
            if batch.forgets:
                gradients = loop.gradients(forget=partial(task.forget_loss, model, batch.data, relabelled))
                loop.step(gradients, Weights(1.0, 0.0))
            else:
                gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.data))
                loop.step(gradients, Weights(0.0, 1.0))
