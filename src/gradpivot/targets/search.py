r"""The closed loop: from conditions on scores to weights that meet them, or to what stands in the way.

1. A method under the dial runs towards the degree of forgetting that ``until`` asks for, a little beyond it.
2. Forward passes along the line θ₀ + s(θ₁ − θ₀) find the smallest share s at which all of ``until`` holds. What is
   forgotten beyond that would only cost what should be kept.
3. If ``keep`` fails there, a shorter run begins at that point, holds the degree and repairs; then 2. again.
4. If the budget ends first, the point is returned that holds ``keep`` and is nearest to ``until``, with the condition
   that binds.

Every look is at forget, retain and validation data, or at a generator's samples. The cost of everything is counted in
plain runs, and ends at ``BUDGET``; looks at samples are counted, and not limited by it.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gradpivot.dial import Segment, gamma_for
from gradpivot.methods import SteerableDescent
from gradpivot.targets.conditions import Seen, Targets, shortfall, worst

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.loop import Outcome
    from gradpivot.methods import Method
    from gradpivot.results import Condition
    from gradpivot.targets.looking import Looks

__all__ = ["BUDGET", "Found", "Place", "Run", "Search", "Try"]

BUDGET = 3.0
"""What all of it may cost, in plain runs."""
MOST_RUNS = 3
BEYOND = 0.02
"""How far beyond the degree that is asked for a run aims: what is too much is walked back by forward passes."""
NEAR = 0.01
"""A landing is near enough if ``until`` holds with no more than this to spare."""
LOOKS = 8
"""Looks along a line, at most."""
REPAIR = 0.4
"""The share of a run's epochs that a repair takes at most: it has nowhere to go, and little to undo."""
_SCAN = (0.75, 0.5, 0.25)

Run = Callable[[int, "Method", "nn.Module"], "Outcome"]
"""Executes run number n of a method without changing the model."""


@dataclass(frozen=True)
class Place:
    """A point on the line between the original and the end of a run, and what was seen there.

    Attributes:
        run: Which run's line, from 1 on; 0 for the original itself.
        share: s of θ₀ + s(θ₁ − θ₀).
        seen: The scores that were looked at.
    """

    run: int
    share: float
    seen: Seen


@dataclass(frozen=True)
class Try:
    """One run on the way.

    Attributes:
        method: What was run.
        start: Where it began.
        landed: The place on its line that was looked at closely: where ``until`` holds with the least forgetting, or
            the end if it holds nowhere.
        reached: Whether ``until`` holds there.
        diverged: None, or the step and the reason.
    """

    method: Method
    start: Place
    landed: Place
    reached: bool
    diverged: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for provenance."""
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
    """How a search ended.

    Attributes:
        place: Where.
        model: The weights of that place.
        met: Whether all conditions hold there.
        binding: The condition that could not be met beside the others; None if all are.
        binding_seen: What was seen where it failed; None likewise.
        tries: The runs that were made.
        history: Telemetry of the run whose line the place is on; empty if nothing ran.
        seconds: Wall-clock of runs and looks.
        cost: All of it in plain runs.
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


class Search:
    """One search for a model that meets the targets.

    Args:
        model: The original; it is not changed.
        method: The method to run. With the dial, γ is set from the targets; any other method runs once, unchanged.
        targets: The conditions to meet.
        looker: Scores models.
        run: Makes a run.
        settle: Puts in order what weights that were moved by hand need, such as BatchNorm's statistics.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        targets: Targets,
        looker: Looks,
        run: Run,
        settle: Callable[[nn.Module], None],
    ) -> None:
        self._original, self._method, self._targets = model, method, targets
        self._looker, self._run, self._settle = looker, run, settle
        self._budget = BUDGET if looker.is_limited else math.inf
        self._until = targets.metrics_until | {"ua"}
        self._lines: list[tuple[Segment, Outcome]] = []
        self._tries: list[Try] = []
        self._places: list[Place] = []
        self._run_cost = self._run_seconds = 0.0
        self._landing_cost = self._until_cost = self._keep_cost = 0.0

    @property
    def cost(self) -> float:
        """What was spent so far, in plain runs."""
        return self._run_cost + self._looker.spent

    def go(self) -> Found:
        """Run and walk until the targets are met, or the budget is spent."""
        started = time.perf_counter()
        place = self._look(Place(0, 0.0, Seen()), self._until)
        reached = self._reached(place)
        if reached:
            place = self._look_closely(place)
        while not (reached and self._kept(place)):
            method = self._next_method(place, reached)
            if method is None:
                break
            place, reached = self._try(method, place)
        met = reached and self._kept(place)
        binding, binding_seen = (None, None) if met else self._binding(place)
        if not met:
            place = self._compromise(place)
        elapsed = time.perf_counter() - started
        return Found(
            place=place,
            model=self._at(place),
            met=met,
            binding=binding,
            binding_seen=binding_seen,
            tries=tuple(self._tries),
            history=self._lines[place.run - 1][1].history if place.run else {},
            seconds=elapsed + self._run_seconds,
            cost=self.cost,
        )

    # What to run next

    @property
    def _can_aim(self) -> bool:
        return self._method.is_dialled

    def _next_method(self, place: Place, reached: bool) -> Method | None:
        """The run that comes next, as long as the budget allows one."""
        if not self._tries and not self._can_aim:
            return self._method
        if len(self._tries) == MOST_RUNS or not self._can_aim:
            return None
        assert isinstance(self._method, SteerableDescent)
        # What a condition takes is paid for; what it may cost is for ``keep`` to say.
        whole = 1.0 if self._method.budget is None else self._method.budget
        # A condition may ask for more than never-seen data show, and UA is the degree of misclassification.
        method = replace(self._method, gamma=self._gamma(place, reached), budget=whole, goal="misclassified")
        if not self._tries:
            return method
        left = self._budget - self.cost - self._landing_cost - self._retreat_cost
        return _shortened(method, min(left, REPAIR if reached else 1.0))

    def _gamma(self, place: Place, reached: bool) -> float:
        """γ of a run that begins at ``place`` and ends a little beyond what is asked for."""
        if not self._looker.tells_degree:
            return 0.0 if reached else 1.0
        degree, asked = place.seen.ua or 0.0, self._targets.asked_ua()
        if reached:
            asked = max(degree, asked or 0.0)
        # Other scores do not tell the degree they take, and a run that fell short would do so again: then all of it is
        # forgotten, and the walk back tells.
        fell_short = bool(self._tries) and not reached
        aim = 1.0 if asked is None or fell_short else asked + BEYOND
        return round(gamma_for((min(aim, 1.0) - degree) / (1 - degree)), 4) if degree < 1 else 0.0

    def _try(self, method: Method, start: Place) -> tuple[Place, bool]:
        """Run, and walk back to the smallest share at which ``until`` holds; where, and whether it does."""
        began = time.perf_counter()
        outcome = self._run(len(self._tries) + 1, method, self._at(start))
        self._run_seconds += outcome.seconds - (time.perf_counter() - began)
        self._run_cost += _length(method) / _length(self._method)
        segment = Segment(self._original)
        segment.set_end(outcome.model)
        self._lines.append((segment, outcome))
        before = self.cost
        landed = self._look_closely(self._landing(len(self._lines)))
        reached = self._reached(landed)
        self._landing_cost = self.cost - before
        self._tries.append(Try(method, start, landed, reached, outcome.diverged))
        return landed, reached

    # Walking

    def _landing(self, run: int) -> Place:
        """The smallest share of a run's line at which ``until`` holds; the end if it holds nowhere."""
        end = self._look(Place(run, 1.0, Seen()), self._until)
        high = end if self._reached(end) else self._before_overshoot(run)
        if high is None:
            return end
        low = self._places[0]
        for look in range(LOOKS):
            is_near = self._spare(high.seen) <= NEAR or self._reached(low)
            if is_near or not self._can_look:
                break
            place = self._look(Place(run, self._between(low, high, look), Seen()), self._until)
            low, high = (low, place) if self._reached(place) else (place, high)
        return high

    def _before_overshoot(self, run: int) -> Place | None:
        """A place on the line at which ``until`` holds though it does not at the end; None if none is seen."""
        for share in _SCAN if self._targets.may_overshoot else ():
            if not self._can_look:
                break
            place = self._look(Place(run, share, Seen()), self._until)
            if self._reached(place):
                return place
        return None

    @property
    def _retreat_cost(self) -> float:
        """The price of a retreat: quick looks for one close look's worth, a close look, and one at the original."""
        return self._until_cost + 3 * self._keep_cost

    @property
    def _can_look(self) -> bool:
        """Whether a landing can afford a look and still the close look at its end, and a retreat."""
        return self.cost + self._until_cost + self._keep_cost + self._retreat_cost <= self._budget

    def _between(self, low: Place, high: Place, look: int) -> float:
        """By turns where a straight line through the two margins has half of what is near, and the middle."""
        below, above = self._spare(low.seen), self._spare(high.seen)
        part = 0.5 if look % 2 else (NEAR / 2 - below) / (above - below)
        return low.share + (high.share - low.share) * min(max(part, 0.1), 0.9)

    def _compromise(self, place: Place) -> Place:
        """The place that holds ``keep`` and is nearest to ``until``, of all that were seen."""
        if not self._kept(place):
            self._retreat(place)
        return min(self._closely_seen, key=self._distance)

    def _retreat(self, place: Place) -> None:
        """Walk from a place at which ``keep`` fails towards the original, as far as it takes and no further."""
        keep = self._targets.metrics_keep
        low, high = 0.0, place.share
        # After the quick looks there is a close one, and one at the original if that fails.
        quick, budget = self._keep_cost, self._budget - self._until_cost - 2 * self._keep_cost
        while place.run:
            for _ in range(LOOKS // 2):
                before = self.cost
                if before + quick > budget:
                    break
                middle = Place(place.run, (low + high) / 2, Seen())
                seen = self._looker.look(self._at(middle), keep, quick=True)
                quick = self.cost - before
                low, high = (middle.share, high) if self._kept(replace(middle, seen=seen)) else (low, middle.share)
            found = self._look_closely(Place(place.run, low, Seen())) if low else None
            if found is None or self._kept(found):
                break
            low, high = 0.0, low
        if not any(self._kept(seen) for seen in self._closely_seen):
            self._look_closely(self._places[0])

    @property
    def _closely_seen(self) -> list[Place]:
        """The places of which ``keep`` is known too."""
        return [p for p in self._places if self._targets.metrics_keep <= p.seen.to_dict().keys()]

    def _distance(self, place: Place) -> tuple[float, float]:
        """By how much ``keep`` fails, and then by how much ``until`` does."""

        def of(conditions: Sequence[Condition]) -> float:
            return max((shortfall(c, place.seen) for c in conditions if not c.holds(place.seen)), default=0.0)

        return of(self._targets.keep), of(self._targets.until)

    # What a place is like

    def _binding(self, place: Place) -> tuple[Condition | None, Seen]:
        """The condition that fails beside the others: one of ``keep`` if ``until`` was reached, else one of that."""
        reached = [t.landed for t in self._tries if t.reached] or ([place] if self._reached(place) else [])
        if reached:
            nearest = min(reached, key=self._distance)
            return worst(self._targets.keep, nearest.seen), nearest.seen
        return worst(self._targets.until, place.seen), place.seen

    def _reached(self, place: Place) -> bool:
        return all(condition.holds(place.seen) for condition in self._targets.until)

    def _kept(self, place: Place) -> bool:
        return all(condition.holds(place.seen) for condition in self._targets.keep)

    def _spare(self, seen: Seen) -> float:
        """By how much ``until`` holds; negative where it does not."""
        return min(-shortfall(condition, seen) for condition in self._targets.until)

    def _look_closely(self, place: Place) -> Place:
        """The place with all scores seen that a condition is about."""
        place = self._look(place, self._until)
        before = self.cost
        place = self._look(place, self._targets.metrics_keep)
        self._keep_cost = max(self._keep_cost, self.cost - before)
        return place

    def _look(self, place: Place, metrics: Collection[str]) -> Place:
        """The place with these scores seen too, kept for a compromise."""
        missing = set(metrics) - place.seen.to_dict().keys()
        if missing:
            before = self.cost
            seen = place.seen.with_more(self._looker.look(self._at(place), missing))
            place = replace(place, seen=seen)
            if missing == self._until:
                self._until_cost = max(self._until_cost, self.cost - before)
        self._places = [p for p in self._places if (p.run, p.share) != (place.run, place.share)]
        self._places.insert(0 if place.run == 0 else len(self._places), place)
        return place

    def _at(self, place: Place) -> nn.Module:
        """A model with the weights of a place."""
        if place.run == 0:
            return copy.deepcopy(self._original)
        segment, outcome = self._lines[place.run - 1]
        model = copy.deepcopy(outcome.model)
        segment.interpolate(model, place.share)
        if place.share != 1:
            self._settle(model)
        return model


def _length(method: Method) -> float:
    """How long a run is, in what its own length is given in."""
    epochs: int = getattr(method, "epochs", 1)
    iterations: int | None = getattr(method, "iterations", None)
    return float(epochs if iterations is None else iterations)


def _shortened(method: SteerableDescent, share: float) -> Method | None:
    """The method with so much of its length, or None if that is no whole epoch or iteration."""
    length = int(share * _length(method))
    if length < 1:
        return None
    return replace(method, epochs=length) if method.iterations is None else replace(method, iterations=length)
