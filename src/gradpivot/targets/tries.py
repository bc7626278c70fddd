"""What a search tried and found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.methods import Method
    from gradpivot.results import Condition
    from gradpivot.targets.conditions import Seen

__all__ = ["Found", "Place", "Try"]


@dataclass(frozen=True)
class Place:
    """A point on the line between the original and the end of a run.

    Attributes:
        run: Number of the run, from 1; 0 for the original.
        share: s in θ₀ + s(θ₁ − θ₀).
        seen: The scores measured there.
    """

    run: int
    share: float
    seen: Seen


@dataclass(frozen=True)
class Try:
    """One run of a search.

    Attributes:
        method: The method and its settings.
        start: The place it started from.
        landed: The place on its line where ``until`` holds with the least forgetting, or the end if there is none.
        reached: Whether ``until`` holds there.
        diverged: Step and reason if the run diverged, else None.
    """

    method: Method
    start: Place
    landed: Place
    reached: bool
    diverged: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {
            "method": self.method.to_dict(),
            "start": {"run": self.start.run, "share": self.start.share},
            "share": self.landed.share,
            "seen": self.landed.seen.to_dict(),
            "reached": self.reached,
            "diverged": self.diverged,
        }


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a search.

    Attributes:
        place: The place found.
        model: The model at that place.
        met: Whether all conditions hold there.
        binding: The condition that could not be met together with the others; None if all are met.
        binding_seen: The scores where it failed; None if all conditions are met.
        tries: The runs of the search.
        history: Telemetry of the run that the place belongs to; empty for the original.
        seconds: Time of runs and measurements.
        cost: Total cost in plain runs.
    """

    place: Place
    model: nn.Module
    met: bool
    binding: Condition | None
    binding_seen: Seen | None
    tries: tuple[Try, ...]
    history: dict[str, list[Any]]
    seconds: float
    cost: float
