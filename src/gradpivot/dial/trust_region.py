r"""The trust region: how long a step may be, found from what the last ones did to both losses.

After a step both losses are computed on the same batches again. If they changed as a first-order step should, the step
stays and the next may be longer; if not, the next is shorter, and a step that did harm is taken back. The learning rate
is where the search begins; what the run ends with hardly depends on it.

The theorem behind the pivot (Hwang & Lim, 2025, Theorem 1) promises descent "for a sufficiently small step"; this finds
that step. It says nothing of the loss whose anchor γ = 0 or 1 stands on, so a rule without a tolerance would never
accept a step there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradpivot.dial.settings import DialSettings

__all__ = ["Change", "TrustRegion"]


class Change(NamedTuple):
    """What a step did to a loss on its own batch.

    Attributes:
        before: The loss before.
        after: The loss after.
        predicted: ⟨Δθ, ∇L⟩, the first-order change.
    """

    before: float
    after: float
    predicted: float

    @property
    def actual(self) -> float:
        """After minus before."""
        return self.after - self.before

    def by(self, unit: float) -> Change:
        """The change in another unit."""
        return Change(self.before / unit, self.after / unit, self.predicted / unit)


@dataclass
class TrustRegion:
    """Bounds on what one step may do to the two losses.

    Attributes:
        rate: The factor on the learning rate, found on the way.
        unit: What a nat is in this task's losses.
        share: Fraction of the bounds that this run's steps may use.
        settings: The constants.
    """

    rate: float = 1.0
    unit: float = 1.0
    share: float = 1.0
    settings: DialSettings = field(default_factory=DialSettings)

    @classmethod
    def of_run(cls, steps: int, unit: float, share: float = 1.0, settings: DialSettings | None = None) -> TrustRegion:
        """For a run of so many steps: the more there are, the less each may change.

        Args:
            steps: How many.
            unit: What a nat is in this task's losses.
            share: Fraction of the bounds that the run may use.
            settings: The constants.
        """
        settings = settings or DialSettings()
        return cls(unit=unit, share=share * min(1.0, settings.reference_steps / steps), settings=settings)

    def accept(self, forget: Change, retain: Change, *, grow: bool) -> bool:
        """Whether the step may stay; sets the length of the next one.

        A loss that became NaN or infinite is a step that must be taken back.

        Args:
            forget: What it did to L_f.
            retain: What it did to L_r.
            grow: Whether longer steps are wanted.
        """
        use = self.settings
        if not (math.isfinite(forget.after) and math.isfinite(retain.after)):
            self._multiply(use.max_cut)
            return False
        forget, retain = forget.by(self.unit), retain.by(self.unit)
        reach = use.forget_reach + use.forget_reach_share * abs(forget.before)
        used = max(retain.actual / use.retain_tolerance, abs(forget.actual) / reach) / self.share
        strain = max(used, self._bend(forget), self._bend(retain))
        if strain > 1:
            self._multiply(max(1 / strain, use.max_cut))
        elif grow and strain < use.growth_below:
            self._multiply(use.growth)
        return used <= use.revert_above

    def _bend(self, change: Change) -> float:
        """How far the change is from the predicted one, in units of what it may be."""
        allowed = self.settings.retain_tolerance + self.settings.curvature * abs(change.predicted)
        return abs(change.actual - change.predicted) / allowed

    def _multiply(self, factor: float) -> None:
        self.rate = min(max(self.rate * factor, self.settings.min_rate), self.settings.max_rate)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"rate": self.rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.rate = state["rate"]
