"""BE: boundary expanding (Chen et al., 2023, "Boundary Unlearning")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import LR_GRID, Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["BE"]


@dataclass(frozen=True, kw_only=True)
class BE(Descent):
    """Boundary expanding: train the forget set to an extra class, then remove that class (Chen et al., 2023).

    Attributes:
        head: Name of the linear layer that computes the logits; detected if unset.
    """

    name: ClassVar[str] = "be"
    title: ClassVar[str] = "BE"
    knob: ClassVar[str | None] = "lr"
    needs_retain: ClassVar[bool] = False
    changes_head: ClassVar[bool] = True
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"lr": LR_GRID}

    lr: float = 5e-3
    head: str | None = None

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train D_f to a shadow class, which is removed afterwards, also on divergence."""
        from gradpivot.methods.parts.head import extra_output, find_head
        from gradpivot.runtime import derive

        task = Classification.require(task, self.title)
        _, sample = next(loop.eval_batches(model, split.train, split.forget_indices[:2], 2))
        with extra_output(find_head(model, task, sample, self.head), derive(loop.seed, "shadow class")):
            for batch in loop.forget_batches(model, task, split, self):
                gradients = loop.gradients(forget=partial(_shadow_loss, task, model, batch.data))
                loop.step(gradients, Weights(1.0, 0.0))


def _shadow_loss(task: Classification, model: nn.Module, batch: Any) -> Tensor:
    """Mean cross-entropy to the last output, the shadow class."""
    logits = task.outputs(model, task.adapter(batch)[0])
    return -logits.log_softmax(1)[:, -1].mean()
