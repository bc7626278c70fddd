r"""The trust region: adapts the step length to the observed change of both losses.

A step is checked by recomputing both losses on its batches. If they changed as predicted to first order, the next
step may be longer; otherwise it is shorter, and a harmful step is reverted. The learning rate is only the initial
value; the result hardly depends on it. Checks are two more forward passes, so a step is trusted without one if its
first-order changes and the curvature that the last check showed leave it well within its bounds.

The theorem behind the pivot (Hwang & Lim, 2025, Theorem 1) guarantees descent "for a sufficiently small step"; this
finds that step. At γ = 0 or 1 it does not cover one of the losses, so a rule without a tolerance would reject every
step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradpivot.dial.settings import DialSettings

__all__ = ["Change", "TrustRegion"]


class Change(NamedTuple):
    """Change of a loss on its batch by one step.

    Attributes:
        before: The loss before the step.
        after: The loss after the step.
        predicted: The first-order change ⟨Δθ, ∇L⟩.
    """

    before: float
    after: float
    predicted: float

    @property
    def actual(self) -> float:
        """The observed change."""
        return self.after - self.before

    def by(self, unit: float) -> Change:
        """The change in units of ``unit``."""
        return Change(self.before / unit, self.after / unit, self.predicted / unit)


@dataclass
class TrustRegion:
    """Bounds on the change of both losses in one step.

    Attributes:
        rate: Current factor on the learning rate.
        unit: One nat in the task's loss units.
        share: Fraction of the bounds that the steps of this run may use.
        reach: Factor on the bound of L_f.
        settings: Constants.
        curvature: Deviation from the prediction at the last check, relative to its bound and to the step's length².
        trusted: Number of steps since the last check.
    """

    rate: float = 1.0
    unit: float = 1.0
    share: float = 1.0
    reach: float = 1.0
    settings: DialSettings = field(default_factory=DialSettings)
    curvature: float = math.inf
    trusted: int = 0

    @classmethod
    def for_run(cls, steps: int, unit: float, share: float = 1.0, settings: DialSettings | None = None) -> TrustRegion:
        """Create the trust region of a run; the bounds shrink with the number of steps.

        Args:
            steps: Number of steps.
            unit: One nat in the task's loss units.
            share: Fraction of the bounds that the run may use.
            settings: Constants.
        """
        settings = settings or DialSettings()
        return cls(unit=unit, share=share * min(1.0, settings.reference_steps / steps), settings=settings)

    def trust(self, forget: Change, retain: Change, length: float, *, grow: bool) -> bool:
        """Decide whether to keep a step without a check; if so, set the length of the next one.

        Args:
            forget: Change of L_f; its ``after`` is not used.
            retain: Change of L_r; likewise.
            length: Norm of the step.
            grow: Whether the next step may be longer.
        """
        settings = self.settings
        if not (math.isfinite(forget.predicted) and math.isfinite(retain.predicted)):
            return False
        before, kept = forget.before / self.unit, retain.before / self.unit
        # As if the losses were there already, whose digits limit what can be seen of a change.
        of_forget, of_retain = self._used(
            before, before + forget.predicted / self.unit - before, kept + retain.predicted / self.unit - kept
        )
        # An infinite curvature times a length of zero is NaN, which is not trusted.
        bend = self.curvature * length**2
        spares = of_retain + bend <= settings.check_above and of_forget + bend <= settings.check_forget_above
        if not spares or self.trusted >= settings.check_every:
            return False
        self.trusted += 1
        self._adapt(max(of_forget, of_retain), max(of_forget, of_retain) + bend, grow=grow)
        return True

    def accept(self, forget: Change, retain: Change, length: float, *, grow: bool) -> bool:
        """Decide whether to keep a checked step, and set the length of the next one.

        A step to a non-finite loss is always rejected.

        Args:
            forget: Change of L_f.
            retain: Change of L_r.
            length: Norm of the step.
            grow: Whether the next step may be longer.
        """
        settings = self.settings
        self.trusted = 0
        if not (math.isfinite(forget.after) and math.isfinite(retain.after)):
            self.curvature = math.inf
            self._multiply(settings.max_cut)
            return False
        forget, retain = forget.by(self.unit), retain.by(self.unit)
        used = max(self._used(forget.before, forget.actual, retain.actual))
        bend = max(self._bend(forget), self._bend(retain))
        self.curvature = bend / length**2 if length else math.inf
        strain = max(used, bend)
        self._adapt(strain, strain, grow=grow)
        return used <= settings.revert_above

    def _adapt(self, strain: float, expected: float, *, grow: bool) -> None:
        """Set the length of the next step."""
        settings = self.settings
        if strain > 1:
            self._multiply(max(1 / strain, settings.max_cut))
        elif grow and expected < settings.growth_below:
            self._multiply(settings.growth)

    def _used(self, before: float, forget: float, retain: float) -> tuple[float, float]:
        """The changes of L_f, which was ``before``, and of L_r, each relative to its bound."""
        settings = self.settings
        reach = self.reach * (settings.forget_reach + settings.forget_reach_share * abs(before))
        return abs(forget) / reach / self.share, retain / settings.retain_tolerance / self.share

    def _bend(self, change: Change) -> float:
        """Deviation from the predicted change, relative to its bound."""
        allowed = self.settings.retain_tolerance + self.settings.curvature * abs(change.predicted)
        return abs(change.actual - change.predicted) / allowed

    def _multiply(self, factor: float) -> None:
        self.rate = min(max(self.rate * factor, self.settings.min_rate), self.settings.max_rate)

    def state_dict(self) -> dict[str, Any]:
        """State that the next step depends on."""
        return {"rate": self.rate, "curvature": self.curvature, "trusted": self.trusted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self.rate, self.curvature, self.trusted = state["rate"], state["curvature"], state["trusted"]
