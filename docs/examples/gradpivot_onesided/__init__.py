"""One-sided gradient surgery: on conflict, project the forget gradient and keep the retain gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gradpivot.geometry import Gram, Weights
from gradpivot.methods import ForgettingDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task


def onesided_weights(gram: Gram, retain_weight: float = 1.0) -> Weights:
    """Return the weights of (f − (C/R) r) + w_r·r on conflict, of f + w_r·r otherwise."""
    if gram.fr >= 0:
        return Weights(1.0, retain_weight)
    return Weights(1.0, retain_weight - gram.fr / gram.rr)


@dataclass(frozen=True, kw_only=True)
class OneSided(ForgettingDescent):
    """Projects the forget gradient off the retain gradient when they conflict, then adds them.

    Attributes:
        retain_weight: w_r, the weight of the retain gradient.
    """

    name: ClassVar[str] = "onesided"
    title: ClassVar[str] = "One-sided"
    knob: ClassVar[str | None] = "retain_weight"

    retain_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("retain_weight", ge=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Compute both gradients, weight them by their Gram matrix, and step."""
        forgetting = objective(self.objective)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, onesided_weights(gradients.gram, self.retain_weight))
