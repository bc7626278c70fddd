"""Bad Teacher: distillation from the original and from a random network (Chundawat et al., AAAI 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["BadTeacher"]


@dataclass(frozen=True, kw_only=True)
class BadTeacher(Descent):
    """Distillation from a randomly initialised network on D_f and from the original on D_r (Chundawat et al., 2023).

    The loss is KL(p_random ‖ p_θ) on D_f plus KL(p_o ‖ p_θ) on D_r. The random network's weights come from the
    ``factory``, or from calling ``reset_parameters`` on every module that has it.

    Attributes:
        temperature: Temperature T that divides all logits.
    """

    name: ClassVar[str] = "bad_teacher"
    title: ClassVar[str] = "Bad Teacher"
    knob: ClassVar[str | None] = "lr"

    lr: float = 1e-2
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("temperature", gt=0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Distil from both teachers."""
        from gradpivot.methods.parts.distillation import divergence, frozen_copy

        task = Classification.require(task, self.title)
        original, random = frozen_copy(model), frozen_copy(model)
        loop.initialise(random)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(divergence, task, model, random, batch.forget, self.temperature),
                retain=partial(divergence, task, model, original, batch.retain, self.temperature),
            )
            loop.step(gradients, Weights(1.0, 1.0))
