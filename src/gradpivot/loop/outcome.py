"""What a run is asked for and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import nn

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.loop.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["Diverged", "ModelFactory", "Moved", "Outcome", "Progress", "RunnableMethod", "Stateful"]

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

ModelFactory = Callable[[], nn.Module]


class RunnableMethod(Protocol):
    """What the Loop needs of a method: to be run."""

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Change ``model`` in place."""
        ...


class Stateful(Protocol):
    """A part of a method whose state belongs into a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on: numbers, strings, tensors and containers of these."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        ...


class Diverged(Exception):  # noqa: N818 - an outcome that methods let pass, not an error of anybody's
    """A loss, gradient or weight became NaN or infinite; the Loop has put the last good weights back."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"diverged at step {step}: {reason}")
        self.step, self.reason = step, reason


class Moved(NamedTuple):
    """The first-order effect of what the optimiser really did; zero where it did nothing or was not measured."""

    forget: float = 0.0
    """⟨Δθ,f⟩, negative where L_f goes down."""
    retain: float = 0.0
    """⟨Δθ,r⟩ likewise."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run left behind."""

    model: nn.Module
    history: dict[str, list[Any]]
    seconds: float
    diverged: dict[str, Any] | None
    note: str | None = None
    """What the method has to say of it, if there is something to be told."""
