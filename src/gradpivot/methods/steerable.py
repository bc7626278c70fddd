"""Methods that the dial can steer: γ then sets the degree of forgetting."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from gradpivot.dial import SUITED
from gradpivot.errors import GradPivotError
from gradpivot.geometry import check_gamma
from gradpivot.methods.method import ForgettingDescent

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.geometry import Gram, Weights
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["SteerableDescent"]


@dataclass(frozen=True, kw_only=True)
class SteerableDescent(ForgettingDescent):
    """A two-gradient descent that runs as published or, with γ, under the dial (:mod:`gradpivot.dial`).

    Attributes:
        gamma: Unlearning intensity in [0, 1]; the run stops at a degree of forgetting of sin(πγ/2). None runs the
            method as published.
        goal: What γ = 1 means: the forget set is misclassified, or the model is as uncertain about it as about
            held-out (unseen) data. If unset, misclassified for a class and unseen for records.
        budget: Fraction of the retain-loss budget (0.15 nats) this run may spend; if unset, sin(πγ/2). A restart may
            raise the error on held-out data by this fraction of 5 points; if unset, by all of them.
        objective: Forgetting loss; suited picks npo for records and unlikelihood otherwise.
        batchnorm: BatchNorm statistics: frozen keeps them, train updates them, recalibrate recomputes them on retain
            data after the run (under the dial with at least 64 retain samples per step). suited is recalibrate for a
            class at γ = 1 where that fits in the retain-loss budget, otherwise frozen.
    """

    extra_objectives: ClassVar[tuple[str, ...]] = (SUITED,)
    conflict_free: ClassVar[bool] = False
    """Whether its steps increase neither loss to first order."""

    gamma: float | None = None
    goal: Literal["misclassified", "unseen"] | None = None
    budget: float | None = None
    objective: str = SUITED
    batchnorm: Literal["suited", "frozen", "train", "recalibrate"] = "suited"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is not None:
            check_gamma(self.gamma)
        if self.budget is not None:
            self._check("budget", ge=0, le=1)
        if not self.is_dialled:
            for name in ("goal", "budget"):
                if getattr(self, name) is not None:
                    raise GradPivotError(f"{self.title}: {name} needs γ as a degree of forgetting; {self._dial_hint}")

    @property
    def is_dialled(self) -> bool:
        """Whether γ is a degree of forgetting."""
        return self.gamma is not None

    @property
    def active_knob(self) -> str | None:
        """γ under the dial, the method's own knob otherwise."""
        return "gamma" if self.is_dialled else self.knob

    @property
    def _dial_hint(self) -> str:
        return "set gamma too, or omit it"

    def uses_validation(self, kind: str, task: Task) -> bool:
        """Whether the goal on a split of this kind is ``unseen``, which is measured on validation data."""
        from gradpivot.dial import resolve_goal

        return self.is_dialled and resolve_goal(kind, task, self.goal) == "unseen"

    def policy(self, kind: str) -> Literal["frozen", "train", "recalibrate"]:
        """Resolve ``suited``, as far as the kind of split decides.

        Recalibration makes forgetting last (:mod:`gradpivot.dial.statistics`). Only γ = 1 on a class asks for that:
        less leaves part of the class by intent, and records hardly change the statistics.
        """
        if self.batchnorm != SUITED:
            return super().policy(kind)
        whole = self.gamma is not None and math.isclose(self.gamma, 1)
        return "recalibrate" if self.is_dialled and whole and kind == "class" else "frozen"

    def to_the_end(self, kind: str, task: Task) -> Self:
        """The method at γ = 1, as the end of a line to the original on which all points are good models."""
        return replace(self, gamma=1.0)

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Run as published, or steer to the degree that γ sets."""
        method = self._resolved(model, task, split, loop)
        if self.is_dialled:
            method.steer(model, task, split, loop)
        else:
            method.descend(model, task, split, loop)

    def _resolved(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> Self:
        """The method with its BatchNorm policy resolved."""
        from gradpivot.dial import can_recalibrate
        from gradpivot.loop import has_batchnorm, recalibrated_batch_size

        method = replace(self, batchnorm=self.policy(split.kind))
        if not self.is_dialled or method.batchnorm != "recalibrate" or not has_batchnorm(model):
            return method
        if self.batchnorm == SUITED and not can_recalibrate(model, task, split, loop, method):
            return replace(method, batchnorm="frozen")
        return replace(method, retain_batch_size=self.retain_batch_size or recalibrated_batch_size(split, method))

    def steer(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Run under the dial."""
        from gradpivot.dial import Dial

        dial = Dial(self, model, task, split, loop)
        if dial.is_reached:
            return
        for batch in loop.paired_batches(model, task, split, self):
            dial.step(batch)
            if dial.is_done(batch.progress):
                loop.end_early()
                break
        dial.finish()

    @abstractmethod
    def descend(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Run the method as published."""

    @abstractmethod
    def steered(self, gram: Gram, intensity: float) -> Weights:
        """Weights of f and r at an intensity in [−1, 1]: 1 forgets, 0 repairs, −1 restores what was forgotten."""
