"""DELETE: distil the original without the true class into the model (Zhou et al., CVPR 2025)."""

from __future__ import annotations

import copy
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

__all__ = ["Delete"]


@dataclass(frozen=True, kw_only=True)
class Delete(Descent):
    """Distillation from the original with the true class masked, on the forget set alone (Zhou et al., 2025).

    The target of a forget sample is the softmax of the original's logits with that of the true class at −∞: the other
    classes keep their ratios. The retain set is not used.
    """

    name: ClassVar[str] = "delete"
    title: ClassVar[str] = "DELETE"
    knob: ClassVar[str | None] = "lr"
    needs_retain: ClassVar[bool] = False
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"lr": LR_GRID}

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Descend KL(masked original ‖ p_θ) on each forget batch."""
        task = Classification.require(task, self.title)
        # Before the first batch, which loads a checkpoint: a resumed run has the same teacher.
        original = copy.deepcopy(model).eval()
        for batch in loop.forget_batches(model, task, split, self):
            gradients = loop.gradients(forget=partial(_distance, task, model, original, batch.data))
            loop.step(gradients, Weights(1.0, 0.0))


def masked_targets(logits: Tensor, labels: Tensor) -> Tensor:
    """The softmax over the other classes: the label's logit is −∞."""
    return logits.scatter(1, labels[:, None], float("-inf")).softmax(1)


def _distance(task: Classification, model: nn.Module, original: nn.Module, batch: Any) -> Tensor:
    """Mean KL(masked original ‖ p_θ)."""
    import torch
    from torch.nn.functional import kl_div

    with torch.no_grad():
        targets = masked_targets(*task.logits(original, batch))
    logits, _ = task.logits(model, batch)
    return kl_div(logits.log_softmax(1), targets, reduction="batchmean")
