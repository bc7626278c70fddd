r"""Steering: from what a run sees to how hard the next step forgets, and how long it is. Numbers in, numbers out.

Two feedback loops make γ a promise in the place of an angle:

- :class:`Course` compares the share of the forget set that is forgotten with the share it should have by now, and
  turns the pivot: harder if it lags behind, to the fidelity anchor (hold L_f, repair L_r) once it is there, a little
  beyond it if it has gone too far.
- :class:`StepLength` looks at both losses on the same batches again after a step, keeps the step if they did what a
  first-order step should do, takes it back if not, and finds by that the length that is safe here and now. The learning
  rate is where it begins; what the run ends with hardly depends on it.

The theorem behind the pivot (Hwang & Lim, 2025, Theorem 1) promises descent "for a sufficiently small step"; this finds
that step. It also says nothing of the loss whose anchor γ = 0 or 1 stands on, so that a rule without a tolerance would
never accept a step there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["LONGEST_MOVE", "Change", "Course", "StepLength", "asked_degree", "gamma_for"]

RAMP = 0.6
"""The share of a run in which forgetting rises to what was asked for; the rest holds it and repairs what was hurt."""
GAIN = 6.0
"""Intensity per unit of lag: 16 points behind is full intensity."""
HARDEST = 0.95
SOFTEST = -0.3
"""The intensity stays between these: at 1 nothing at all is done for L_r, and giving back is a correction."""
EVIDENCE = 128
"""Samples after which an observation counts half: one batch says little about a share."""
LOSS_BUDGET = 0.1
"""While L_r stands this much above its start (nats), the run repairs before it forgets more."""
REPAIR = 0.1
"""The intensity is at most this while it does."""

RETAIN_TOLERANCE = 0.05
"""A step may raise L_r by this on its own batch (nats): the likelihood of what is kept falls by 5 %."""
FORGET_REACH = 0.15
FORGET_REACH_SHARE = 0.1
"""A step may change L_f by 0.15 nats and a tenth of what it is. L_f leaves its plateau like an avalanche: with longer
steps a run cannot stop in the middle."""
LONG_RUN = 200
"""In a run of more steps each may change less, in proportion: thousands of full ones, to and fro about what was asked
for, wander off."""
BEND = 0.5
"""A change may differ from the first-order one by half of it, beyond the tolerance; a step for which it does is longer
than the gradient can see."""
TAKE_BACK = 2.0
"""A step that changed a loss by more than this many times what it may is taken back."""
GROWTH = 1.5
CAUTION = 0.5
"""Steps grow while a run lags and uses less than half of what it may."""
LAG = 0.02
SHORTEST_CUT = 0.05
LEAST_RATE = 1e-12
MOST_RATE = 1e12
"""Beyond these a rate means nothing, and would leave the range of numbers in the end."""
CALM = 0.1
"""Steps shrink to this in the last part of a run: what it has settled on is then not left by chance."""
LEAST_WAY = 1e-3
"""Nothing is left to forget of what is all but forgotten before the run, as a share of the most; it is held."""
LONGEST_MOVE = 0.02
"""No step is longer than this share of the weights' own length."""


def asked_degree(gamma: float) -> float:
    r"""How much of the way to "all of it is forgotten" γ asks for: sin(πγ/2).

    It is the pull cos∠(g_γ, f) = sin(γφ) of the paper's pivot on orthogonal gradients (φ = π/2): 0 at γ = 0, 1 at
    γ = 1, even (no tenth of γ is more than 16 points), and level at the end, where UA is.
    """
    return math.sin(math.pi * gamma / 2)


def gamma_for(degree: float) -> float:
    """The γ that asks for ``degree``; the inverse of :func:`asked_degree`."""
    return 2 / math.pi * math.asin(min(max(degree, 0.0), 1.0))


@dataclass
class Course:
    """Feedback from the forgotten share to the pivot's intensity.

    Attributes:
        start: The degree of forgetting before the run, in [0, 1].
        asked: The degree it should end with.
        most: The degree that γ = 1 asks for.
        unit: What a nat is in this task's losses.
        softest: The least intensity: below 0 a run gives back, which not every objective can.
        lag: How far it is behind its course, as a share of the way from the start to the most: asked for by now minus
            seen, a mean that forgets slowly. Both sides are averaged alike, so that the delay of the average is none of
            the lag.
        evidence: How much that mean has seen, in [0, 1].
        retain_level: A mean of L_r likewise.
        retain_start: L_r before the run, over enough samples: one batch may be easy or hard by chance, and everything
            after it would look hurt or whole.
    """

    start: float
    asked: float
    retain_start: float
    most: float = 1.0
    unit: float = 1.0
    softest: float = SOFTEST
    lag: float = 0.0
    evidence: float = 0.0
    retain_level: float = field(init=False)

    def __post_init__(self) -> None:
        self.retain_level = self.retain_start

    def by_now(self, progress: float) -> float:
        """The degree of forgetting that a run should have when a share ``progress`` of it is done."""
        return self.start + (self.asked - self.start) * min(1.0, progress / RAMP)

    def intensity(self, progress: float, degree: float, samples: int, retain_loss: float) -> float:
        """How hard to turn, given what the batch of this step has shown.

        Args:
            progress: The share of the run that is done.
            degree: The forgotten share of the forget batch.
            samples: How many samples it has.
            retain_loss: L_r of the retain batch.
        """
        share = samples / (samples + EVIDENCE)
        self.evidence += share * (1 - self.evidence)
        # In shares of the way from the start to "all of it": degrees may begin anywhere, and end below 1.
        way = self.most - self.start
        behind = (self.by_now(progress) - degree) / way if way > LEAST_WAY * self.most else 0.0
        self.lag += share * (behind - self.lag)
        self.retain_level += share * (retain_loss - self.retain_level)
        hardest = REPAIR if self.is_hurt else HARDEST
        return min(max(GAIN * self.behind, self.softest), hardest)

    @property
    def behind(self) -> float:
        """The lag without the bias of a mean that began at zero."""
        return self.lag / self.evidence if self.evidence else 0.0

    @property
    def is_hurt(self) -> bool:
        """Whether what should be kept has lost more than the budget."""
        return self.retain_level > self.retain_start + LOSS_BUDGET * self.unit

    @staticmethod
    def calm(progress: float) -> float:
        """What steps are multiplied with: 1 until the ramp ends, then down to a tenth."""
        return 1 - (1 - CALM) * max(0.0, (progress - RAMP) / (1 - RAMP))

    def columns(self) -> dict[str, float]:
        """What a history keeps, and :meth:`resume` needs."""
        return {"lag": self.lag, "evidence": self.evidence, "retain_level": self.retain_level}

    def resume(self, row: Mapping[str, Any]) -> None:
        """Continue after the step whose columns these are."""
        self.lag, self.evidence, self.retain_level = row["lag"], row["evidence"], row["retain_level"]


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

    @property
    def bend(self) -> float:
        """How far the change is from the predicted one, in units of what it may be."""
        return abs(self.actual - self.predicted) / (RETAIN_TOLERANCE + BEND * abs(self.predicted))

    def by(self, unit: float) -> Change:
        """The change in another unit."""
        return Change(self.before / unit, self.after / unit, self.predicted / unit)


@dataclass
class StepLength:
    """A trust region in the two losses: what steps are multiplied with.

    Attributes:
        rate: The factor on the learning rate, found on the way.
        unit: What a nat is in this task's losses.
        share: How much of what a step may change this run's steps may.
    """

    rate: float = 1.0
    unit: float = 1.0
    share: float = 1.0

    @classmethod
    def of_run(cls, steps: int, unit: float, share: float = 1.0) -> StepLength:
        """For a run of so many steps: the more there are, the less each may change.

        Args:
            steps: How many.
            unit: What a nat is in this task's losses.
            share: How much of what a run may change this one may.
        """
        return cls(unit=unit, share=share * min(1.0, LONG_RUN / steps))

    def judge(self, forget: Change, retain: Change, *, grow: bool) -> bool:
        """Whether the step may stay; the next one's length follows from it.

        A loss that has become NaN or infinite is a step that must be taken back.

        Args:
            forget: What it did to L_f.
            retain: What it did to L_r.
            grow: Whether longer steps are wanted.
        """
        if not (math.isfinite(forget.after) and math.isfinite(retain.after)):
            self._multiply(SHORTEST_CUT)
            return False
        forget, retain = forget.by(self.unit), retain.by(self.unit)
        reach = FORGET_REACH + FORGET_REACH_SHARE * abs(forget.before)
        used = max(retain.actual / RETAIN_TOLERANCE, abs(forget.actual) / reach) / self.share
        strain = max(used, forget.bend, retain.bend)
        if strain > 1:
            self._multiply(max(1 / strain, SHORTEST_CUT))
        elif grow and strain < CAUTION:
            self._multiply(GROWTH)
        return used <= TAKE_BACK

    def _multiply(self, factor: float) -> None:
        self.rate = min(max(self.rate * factor, LEAST_RATE), MOST_RATE)
