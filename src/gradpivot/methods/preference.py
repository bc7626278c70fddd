"""Methods that weigh the two losses by their values, under a preference between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Gram, Weights
from gradpivot.methods.method import Descent, ForgettingDescent
from gradpivot.tasks import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["PreferenceDescent"]


@dataclass(frozen=True, kw_only=True)
class PreferenceDescent(ForgettingDescent):
    """Descent along a·f + b·r, with (a, b) from the values of the losses and a preference.

    A weighting sees the Gram matrix only, which does not hold these values.

    Attributes:
        preference: Weight w_f of forgetting, in (0, 1); retaining has 1 − w_f.
    """

    knob: ClassVar[str | None] = "preference"
    # Not −CE: the values need a bound.
    paper: ClassVar[Mapping[str, Any]] = Descent.paper
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-3, 1e-2),
        "preference": (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    lr: float = 1e-2
    preference: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("preference", gt=0, lt=1)

    @abstractmethod
    def weights(self, gram: Gram, forget_loss: float, retain_loss: float) -> Weights:
        """Weights of f and r."""

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
            loop.step(gradients, self.weights(gradients.gram, gradients.forget_loss, gradients.retain_loss))
