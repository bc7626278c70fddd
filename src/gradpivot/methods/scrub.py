"""SCRUB: away from the original on the forget set, towards it on the retain set (Kurmanji et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.methods.parts.rewinding import Rewinding
    from gradpivot.tasks import Task

__all__ = ["SCRUB"]


@dataclass(frozen=True, kw_only=True)
class SCRUB(Descent):
    """Alternating distillation from the original p_o (Kurmanji et al., 2023).

    Max steps ascend KL(p_o ‖ p_θ) on the forget set, and min steps descend α·KL(p_o ‖ p_θ) + CE on the retain set. Each
    of the first ``max_epochs`` epochs passes over the forget set, and every epoch over the whole retain set.

    Attributes:
        alpha: Weight α of the divergence on the retain set.
        max_epochs: Epochs that start with max steps.
        epochs: Passes over the retain set.
        batch_size: Forget samples per max step; if unset, the power of two that gives about 16 steps per epoch.
        retain_batch_size: Retain samples per min step; if unset, as many as forget samples.
        rewind: Return the end of the epoch whose error on the forget set is nearest to the final model's on held-out
            data with the same labels (SCRUB+R).
    """

    name: ClassVar[str] = "scrub"
    title: ClassVar[str] = "SCRUB"
    knob: ClassVar[str | None] = "lr"
    uses_all_retain: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Any]] = {**Descent.paper, "retain_batch_size": 256}

    lr: float = 1e-2
    retain_batch_size: int | None = 128
    alpha: float = 0.5
    max_epochs: int = 3
    rewind: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("alpha", ge=0)
        self._check("max_epochs", ge=0, integer=True)

    def uses_validation(self, kind: str, task: Task) -> bool:
        """Whether it rewinds, to an error measured on validation data."""
        return self.rewind

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of every batch, without the teacher's forward passes."""
        from gradpivot.loop import sequential_plan

        plan = sequential_plan(split, self, 0)
        epochs = plan.total / plan.per_epoch
        return min(epochs, self.max_epochs) * len(split.forget_indices) + epochs * len(split.retain_indices)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Alternate max and min epochs."""
        from gradpivot.methods.parts.distillation import frozen_copy

        task = Classification.require(task, self.title)
        teacher = frozen_copy(model)
        rewinding = self._rewinding(model, task, split, loop)
        for batch in loop.sequential_batches(model, task, split, self):
            if not batch.forgets:
                gradients = loop.gradients(retain=partial(self._min_loss, task, model, teacher, batch.data))
                loop.step(gradients, Weights(0.0, 1.0))
            elif batch.epoch < self.max_epochs:
                gradients = loop.gradients(forget=partial(self._max_loss, task, model, teacher, batch.data))
                loop.step(gradients, Weights(1.0, 0.0))
            if rewinding and batch.ends_epoch:
                rewinding.keep(model)
        if rewinding:
            rewinding.rewind(model, partial(loop.recalibrate, model, task, split, self))

    def _max_loss(self, task: Classification, model: nn.Module, teacher: nn.Module, batch: Any) -> Tensor:
        """−KL(p_o ‖ p_θ)."""
        from gradpivot.methods.parts.distillation import divergence

        return -divergence(task, model, teacher, batch)

    def _min_loss(self, task: Classification, model: nn.Module, teacher: nn.Module, batch: Any) -> Tensor:
        """α·KL(p_o ‖ p_θ) + CE."""
        from gradpivot.methods.parts.distillation import divergence

        return self.alpha * divergence(task, model, teacher, batch) + task.retain_loss(model, batch)

    def _rewinding(self, model: nn.Module, task: Classification, split: ForgetSplit, loop: Loop) -> Rewinding | None:
        from gradpivot.methods.parts.rewinding import Rewinding

        if not self.rewind:
            return None
        if split.validation is None:
            raise GradPivotError(
                f"{self.title}: rewind needs held-out data, but the split has no validation data; add some, use half "
                f"of the test data with split.with_validation(), or set rewind=False"
            )
        rewinding = Rewinding(model, task, split, loop)
        loop.attach(rewinding)
        return rewinding
