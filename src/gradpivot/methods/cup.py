"""CUP: controllable unlearning by pivoting gradients (Hwang & Lim, 2025, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.geometry.pivot import check_gamma, pivot_weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.objectives import objective

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks.task import Task

__all__ = ["CUP"]


@dataclass(frozen=True, kw_only=True)
class CUP(ForgettingDescent):
    """Each step pivots between keeping (γ=0) and forgetting (γ=1) inside the conflict-free cone.

    Defaults are the safe choices: an objective with a floor, a length limit, frozen BatchNorm.
    ``CUP.protocol("paper", gamma=…)`` is the printed form.

    Attributes:
        gamma: The unlearning intensity γ ∈ [0, 1].
        gamma_end: If given, γ goes linearly from ``gamma`` to this over the run.
    """

    name: ClassVar[str] = "cup"
    title: ClassVar[str] = "CUP"
    knob: ClassVar[str | None] = "gamma"
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 1e-3),
        "gamma": (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    gamma: float = 0.5
    gamma_end: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self.gamma)
        if self.gamma_end is not None:
            check_gamma(self.gamma_end)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Algorithm 1: two gradients, their Gram matrix to two weights, one step."""
        forgetting = objective(self.objective)
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, forgetting),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            weights = pivot_weights(*gradients.gram, self.gamma_at(batch.progress))
            loop.step(gradients, weights)

    def gamma_at(self, progress: float) -> float:
        """γ when a fraction ``progress`` of the steps is done."""
        if self.gamma_end is None:
            return self.gamma
        return self.gamma + (self.gamma_end - self.gamma) * progress
