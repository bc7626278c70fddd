"""Methods that can be put under the dial: γ then sets the degree of forgetting that a run is steered to."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

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
    """A descent on two gradients that runs as published or, with γ, under the dial (:mod:`gradpivot.dial`).

    Attributes:
        gamma: The unlearning intensity γ ∈ [0, 1]: the run ends where sin(πγ/2) of what can be forgotten is. None runs
            the method as published.
        goal: What is forgotten at γ = 1: all is ``misclassified``, or the model is as uncertain as on ``unseen`` data
            (the split's validation data). None takes the first for a class and the second for records.
        budget: Fraction of the retain-loss budget (0.15 nats) this run may spend; None takes sin(πγ/2).
        objective: The forgetting loss, or ``suited``: npo for records under the dial, else unlikelihood.
    """

    more_objectives: ClassVar[tuple[str, ...]] = (SUITED,)
    conflict_free: ClassVar[bool] = False
    """Whether its step promises that neither loss rises to first order."""

    gamma: float | None = None
    goal: Literal["misclassified", "unseen"] | None = None
    budget: float | None = None
    objective: str = SUITED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is not None:
            check_gamma(self.gamma)
        if self.budget is not None:
            self._check("budget", least=0, most=1)
        if not self.is_dialled:
            for name in ("goal", "budget"):
                if getattr(self, name) is not None:
                    raise GradPivotError(f"{self.title}: {name} belongs to a run to a degree; {self._way_to_dial}")

    @property
    def is_dialled(self) -> bool:
        """Whether γ is a degree of forgetting that the run is steered to."""
        return self.gamma is not None

    @property
    def walked(self) -> str | None:
        """γ under the dial, else the method's own knob."""
        return "gamma" if self.is_dialled else self.knob

    @property
    def _way_to_dial(self) -> str:
        return "give gamma too, or leave it out"

    def looks_at_unseen(self, kind: str, task: Task) -> bool:
        """Whether it steers by validation data, on a split of that kind."""
        from gradpivot.dial import goal_name

        return self.is_dialled and goal_name(kind, task, self.goal) == "unseen"

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """The method as published, or steered to the degree that γ asks for."""
        from gradpivot.dial import Dial

        if not self.is_dialled:
            self.descend(model, task, split, loop)
            return
        dial = Dial(self, model, task, split, loop)
        if dial.is_reached:
            return
        for batch in loop.paired_batches(model, task, split, self):
            dial.step(batch)
        dial.land()

    @abstractmethod
    def descend(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """The method as published."""

    @abstractmethod
    def steered(self, gram: Gram, intensity: float) -> Weights:
        """The weights of f and r at an intensity from −1 (give back) over 0 (repair) to 1 (forget)."""
