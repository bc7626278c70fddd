"""CUP: controllable unlearning by pivoting gradients (Hwang & Lim, 2025, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.errors import GradPivotError
from gradpivot.geometry import check_gamma, pivot_weights, steered_weights
from gradpivot.methods.method import ForgettingDescent
from gradpivot.methods.steerable import SteerableDescent

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Gram, Weights
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["CUP"]


@dataclass(frozen=True, kw_only=True)
class CUP(SteerableDescent):
    """Each step pivots between keeping and forgetting inside the conflict-free cone; γ says how much is forgotten.

    By default γ is a *degree*: the run ends where sin(πγ/2) of what can be forgotten is, for any learning rate, batch
    size and model; steps are checked and taken back if they hurt (:mod:`gradpivot.dial`). With ``dial="angle"`` γ is
    the angle of the paper's equations, and ``CUP.protocol("paper", gamma=…)`` is the printed form.

    Attributes:
        gamma: The unlearning intensity γ ∈ [0, 1].
        dial: What γ means: the ``degree`` of forgetting, or the pivot's ``angle`` at every step.
        gamma_end: If given, the angle goes linearly from ``gamma`` to this over the run.
    """

    name: ClassVar[str] = "cup"
    title: ClassVar[str] = "CUP"
    knob: ClassVar[str | None] = "gamma"
    conflict_free: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Any]] = {**ForgettingDescent.paper, "dial": "angle", "momentum": 0.9}
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-4, 1e-3),
        "gamma": (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    }

    gamma: float = 0.5
    dial: Literal["degree", "angle"] = "degree"
    gamma_end: float | None = None
    # The pivot's promise is about the gradient of this step; momentum would add those of others. The length is found.
    momentum: float = 0.0
    max_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self.gamma)
        if self.gamma_end is not None:
            check_gamma(self.gamma_end)
            if self.is_dialled:
                raise GradPivotError(
                    "CUP: gamma_end is a schedule of the angle; set dial='angle', or give the degree as gamma alone"
                )

    @property
    def is_dialled(self) -> bool:
        """Whether γ is a degree of forgetting that the run is steered to."""
        return self.dial == "degree"

    @property
    def _way_to_dial(self) -> str:
        return "leave it out, or set dial='degree'"

    def gamma_at(self, progress: float) -> float:
        """γ when a fraction ``progress`` of the steps is done."""
        if self.gamma_end is None:
            return self.gamma
        return self.gamma + (self.gamma_end - self.gamma) * progress

    def descend(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Algorithm 1: two gradients, their Gram matrix to two weights, one step."""
        from gradpivot.dial import suited_objective

        objective = suited_objective(self.objective, "class", task)
        for batch in loop.paired_batches(model, task, split, self):
            # 1. f = ∇L_f on a forget batch, r = ∇L_r on as many retain samples.
            gradients = loop.gradients(
                forget=partial(task.forget_loss, model, batch.forget, objective),
                retain=partial(task.retain_loss, model, batch.retain),
            )
            # 2. g_CUP = ‖T‖·(cos(γφ)·ĝ_fid + sin(γφ)·f̂) = a·f + b·r (eq:rotation, eq:cup_update).
            weights = pivot_weights(*gradients.gram, self.gamma_at(batch.progress))
            # 3. θ ← θ − λ·g_CUP.
            loop.step(gradients, weights)

    def steered(self, gram: Gram, intensity: float) -> Weights:
        """The pivot at any angle, of a length that vanishes when there is nothing left to gain."""
        return steered_weights(gram, intensity)
