"""ℓ1-sparse: fine-tuning on the retain set with an ℓ1 penalty (Jia et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Batch, Loop
    from gradpivot.tasks import Task

__all__ = ["L1Sparse"]


@dataclass(frozen=True, kw_only=True)
class L1Sparse(Descent):
    """Fine-tuning on the retain set with a decaying ℓ1 penalty (Jia et al., 2023).

    The loss is CE + α_t·‖θ‖₁, with α_t falling linearly from α at the first step to 0 at the last. The forget set is
    not used: a sparse model lacks the capacity to remember what it is not trained on.

    Attributes:
        alpha: Initial weight of the ℓ1 penalty.
        epochs: Passes over the retain set.
    """

    name: ClassVar[str] = "l1_sparse"
    title: ClassVar[str] = "ℓ1-sparse"
    knob: ClassVar[str | None] = "alpha"
    needs_forget: ClassVar[bool] = False
    uses_all_retain: ClassVar[bool] = True
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
        "alpha": (0.001, 0.005, 0.01, 0.05),
    }

    lr: float = 0.05
    batch_size: int | None = 64
    alpha: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", ge=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Fine-tune on D_r; the recorded retain loss includes the penalty."""
        for batch in loop.batches(model, task, split.train, split.retain_indices, self):
            gradients = loop.gradients(retain=partial(self._penalised, model, task, batch))
            loop.step(gradients, Weights(0.0, 1.0))

    def _penalised(self, model: nn.Module, task: Task, batch: Batch) -> Tensor:
        """CE + α_t·‖θ‖₁ over the trainable weights."""
        loss = task.retain_loss(model, batch.data)
        for weights in model.parameters():
            if weights.requires_grad:
                loss = loss + self.alpha_at(batch.progress) * weights.abs().sum()
        return loss

    def alpha_at(self, progress: float) -> float:
        """α_t = α·(1 − t) after a fraction t of the steps."""
        return self.alpha * (1 - progress)
