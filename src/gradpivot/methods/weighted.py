"""Methods that are a weighting: each step combines the two gradients by a rule that reads their Gram matrix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.methods.method import ForgettingDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Weighting
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["LossWeightedDescent", "WeightedDescent"]


@dataclass(frozen=True, kw_only=True)
class WeightedDescent(ForgettingDescent):
    """Descends a·f + b·r, with (a, b) from a rule that stays the same over the run."""

    @abstractmethod
    def weighting(self) -> Weighting:
        """The rule from the Gram matrix of f and r to their weights. Pure: what it kept would be lost on resuming."""

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Two gradients, their Gram matrix to two weights, one step."""
        forgetting, weighting = objective(self.objective), self.weighting()
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            loop.step(gradients, weighting(gradients.gram))


@dataclass(frozen=True, kw_only=True)
class LossWeightedDescent(WeightedDescent):
    """A weighting of the gradients of w_f·L_f and w_r·L_r.

    Attributes:
        forget_weight: w_f.
        retain_weight: w_r.
    """

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
