"""PCGrad (Yu et al., 2020) for two losses: project each off the other in a conflict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gradpivot.geometry import Gram, Weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.objectives import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks.task import Task


def pcgrad_weights(gram: Gram, scale: float = 1.0) -> Weights:
    """(f − (C/R) r) + (r − (C/F) f) under conflict, f + r otherwise."""
    if gram.fr >= 0:
        return Weights(scale, scale)
    return Weights(scale * (1 - gram.fr / gram.ff), scale * (1 - gram.fr / gram.rr))


@dataclass(frozen=True, kw_only=True)
class PCGrad(ForgettingDescent):
    """Projects conflicting gradients off each other, then adds them.

    Attributes:
        scale: Factor on the sum; 0.5 gives the mean.
    """

    name: ClassVar[str] = "pcgrad"
    title: ClassVar[str] = "PCGrad"
    knob: ClassVar[str | None] = "lr"

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("scale", above=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Two gradients, their Gram matrix to two weights, one step."""
        forgetting = objective(self.objective)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, pcgrad_weights(gradients.gram, self.scale))
