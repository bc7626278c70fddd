"""Interfaces and results of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import nn

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.loop.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["Diverged", "FirstOrderChange", "ModelFactory", "Outcome", "Progress", "RunnableMethod", "Stateful"]

Progress = Callable[[int, int], None]
"""Called with (steps done, total steps)."""

ModelFactory = Callable[[], nn.Module]


class RunnableMethod(Protocol):
    """What the Loop needs from a method."""

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Change ``model`` in place."""
        ...


class Stateful(Protocol):
    """Part of a method with state to checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """State that the next step depends on: numbers, strings, tensors and containers of these."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        ...


class Diverged(Exception):  # noqa: N818 - control flow that methods let pass, not an error
    """A loss, gradient or weight became NaN or infinite; the Loop has restored the last good weights."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"diverged at step {step}: {reason}")
        self.step, self.reason = step, reason


class FirstOrderChange(NamedTuple):
    """First-order effect of the actual update on both losses; zero if there was none or it was not measured."""

    forget: float = 0.0
    """⟨Δθ,f⟩; negative if L_f decreases."""
    retain: float = 0.0
    """⟨Δθ,r⟩; negative if L_r decreases."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run."""

    model: nn.Module
    history: dict[str, list[Any]]
    seconds: float
    diverged: dict[str, Any] | None
    note: str | None = None
    """A note from the method to the user, if any."""
