"""CUP: controllable unlearning by gradient pivoting (Hwang & Lim, 2025, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

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
    """Gradient pivoting: conflict-free steps between retaining (γ = 0) and forgetting (γ = 1) (Hwang & Lim, 2025).

    By default γ is a *degree*: the run stops at a degree of forgetting of sin(πγ/2), for any learning rate, batch size
    and model, and reverts steps that do harm (:mod:`gradpivot.dial`). With ``dial="angle"`` γ is the angle in the
    paper's equations; ``CUP.protocol("paper", gamma=…)`` is the published algorithm.

    Attributes:
        gamma: Unlearning intensity in [0, 1].
        dial: Meaning of γ: the degree of forgetting, or the pivot's angle at every step.
        gamma_end: Final γ of a linear schedule; only with dial=angle.
        shrink: Records only: fraction of the original weights that a restart keeps (if unset: 0 at γ = 1, else 0.3). A
            restart uses the two settings below, retain_batch_size, optimizer, augment, weight_decay and max_norm, and
            no others of a descent. 1 disables it: gradients of the forget loss steer instead.
        training_epochs: Epochs the original was trained for (30 if unset). A restart takes about a quarter of them.
        training_lr: Peak learning rate the original was trained with (0.05 if unset).
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
    shrink: float | None = None
    training_epochs: int | None = None
    training_lr: float | None = None
    # The pivot is conflict-free for the current gradients only; momentum would add earlier ones. The trust region sets
    # the step length, so there is no clipping.
    momentum: float = 0.0
    max_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gamma(self.gamma)
        if self.gamma_end is not None:
            check_gamma(self.gamma_end)
            if self.is_dialled:
                raise GradPivotError("CUP: gamma_end needs dial='angle'; set that, or omit gamma_end")
        if self.shrink is not None:
            self._check("shrink", ge=0, le=1)
        if self.training_epochs is not None:
            self._check("training_epochs", ge=1, integer=True)
        if self.training_lr is not None:
            self._check("training_lr", gt=0)

    @property
    def is_dialled(self) -> bool:
        """Whether γ is a degree of forgetting."""
        return self.dial == "degree"

    @property
    def _dial_hint(self) -> str:
        return "omit it, or set dial='degree'"

    def gamma_at(self, progress: float) -> float:
        """γ after a fraction ``progress`` of the steps."""
        if self.gamma_end is None:
            return self.gamma
        return self.gamma + (self.gamma_end - self.gamma) * progress

    def restarts(self, kind: str, task: Task) -> bool:
        """Whether a run on a split of this kind is a restart (:mod:`gradpivot.dial.restart`)."""
        return self.shrink != 1 and self.uses_validation(kind, task)

    def to_the_end(self, kind: str, task: Task) -> Self:
        """The method at γ = 1; a restart keeps as much of the original's weights as for γ < 1."""
        from gradpivot.dial import DialSettings

        end = super().to_the_end(kind, task)
        if end.shrink is not None or not end.restarts(kind, task):
            return end
        return replace(end, shrink=DialSettings().shrink)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Restart and train on retained data for records; otherwise pivot."""
        if not self.restarts(split.kind, task):
            super().unlearn(model, task, split, loop)
            return
        from gradpivot.dial import Restart

        if self.saliency is not None:
            raise GradPivotError("CUP: a restart changes all weights, so saliency needs shrink=1 for records")
        Restart(self, model, task, split, loop).run()

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of every batch; a restart passes over the retain set."""
        from gradpivot.dial import DialSettings, restart_epochs
        from gradpivot.tasks import Classification

        if not self.restarts(split.kind, Classification()):
            return super().gradients(split)
        return float(restart_epochs(self.training_epochs or DialSettings().training_epochs) * len(split.retain_indices))

    def descend(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Run Algorithm 1."""
        from gradpivot.dial import resolve_objective

        objective = resolve_objective(self.objective, "class", task)
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
        """The pivot at this intensity; its length vanishes at a Pareto-stationary point."""
        return steered_weights(gram, intensity)
