"""Methods defined by a weighting: a rule that maps the Gram matrix of the two gradients to their weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Gram, LossWeighted, Weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.methods.steerable import SteerableDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Weighting
    from gradpivot.loop import Loop
    from gradpivot.tasks import Objective, Task

__all__ = ["LossWeightedDescent", "WeightedDescent"]


@dataclass(frozen=True, kw_only=True)
class WeightedDescent(ForgettingDescent):
    """Descent along a·f + b·r, with (a, b) from a fixed weighting."""

    @abstractmethod
    def weighting(self) -> Weighting:
        """Map from the Gram matrix of f and r to their weights. Must be pure: its state is not checkpointed."""

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Take one weighted step per batch."""
        _descend(self, self.weighting(), objective(self.objective), model, task, split, loop)


@dataclass(frozen=True, kw_only=True)
class LossWeightedDescent(SteerableDescent):
    """Descent by a weighting of the gradients of w_f·L_f and w_r·L_r.

    Under the dial at intensity i, the two losses are also scaled by i and 1 − i.

    Attributes:
        forget_weight: Weight w_f of the forget loss.
        retain_weight: Weight w_r of the retain loss.
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
        self._check("forget_weight", ge=0)
        self._check("retain_weight", ge=0)

    @abstractmethod
    def rule(self) -> Weighting:
        """Map from the Gram matrix of two gradients to their weights. Must be pure: its state is not checkpointed."""

    def weighting(self) -> Weighting:
        """The rule applied to the gradients of w_f·L_f and w_r·L_r."""
        return LossWeighted(self.rule(), self.forget_weight, self.retain_weight)

    def descend(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Take one weighted step per batch."""
        from gradpivot.dial import resolve_objective

        forgetting = resolve_objective(self.objective, "class", task)
        _descend(self, self.weighting(), forgetting, model, task, split, loop)

    def steered(self, gram: Gram, intensity: float) -> Weights:
        """The rule applied to |i|·f and (1 − |i|)·r; a negative intensity uses −f instead of f."""
        if intensity == 0:
            return Weights(0.0, 1.0)
        sign = 1.0 if intensity > 0 else -1.0
        size = abs(intensity)
        rule = LossWeighted(self._rule, size * self.forget_weight, (1 - size) * self.retain_weight)
        forget, retain = rule(Gram(gram.ff, gram.rr, sign * gram.fr))
        return Weights(sign * forget, retain)

    @cached_property
    def _rule(self) -> Weighting:
        return self.rule()


def _descend(
    method: ForgettingDescent,
    weighting: Weighting,
    forgetting: Objective,
    model: nn.Module,
    task: Task,
    split: ForgetSplit,
    loop: Loop,
) -> None:
    for batch in loop.paired_batches(model, task, split, method):
        gradients = loop.gradients(
            forget=partial(task.forget_loss, model, batch.forget, forgetting),
            retain=partial(task.retain_loss, model, batch.retain),
        )
        loop.step(gradients, weighting(gradients.gram))
