r"""Closed-loop search for weights that meet the conditions ``until`` and ``keep``.

1. Run a method with the dial to slightly more than the degree of forgetting that ``until`` requires.
2. Walk back along the line θ₀ + s(θ₁ − θ₀), with forward passes only, to the smallest share s at which ``until`` holds.
   Forgetting more would only hurt the retain set.
3. If ``keep`` fails there, start a shorter repair run from that point, which holds the degree, and repeat step 2.
4. If the budget is spent first, return the best compromise, which meets ``keep`` and is closest to ``until``, and the
   binding condition.

Scores are measured on forget, retain and validation data, or on a generator's samples. The cost of runs and
measurements is counted in plain runs and limited by ``BUDGET``; sampling from a generator is not limited.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from gradpivot.dial import Segment, gamma_for
from gradpivot.methods import SteerableDescent
from gradpivot.targets.conditions import Seen, Targets, shortfall, worst
from gradpivot.targets.tries import Found, Place, Try

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.loop import Outcome
    from gradpivot.methods import Method
    from gradpivot.results import Condition
    from gradpivot.targets.looking import Looks

__all__ = ["BUDGET", "GoalName", "Run", "Search"]

BUDGET = 3.0
"""Maximum cost of a search, in plain runs."""
MOST_RUNS = 3
OVERSHOOT = 0.02
"""A run aims this far beyond the required degree; walking back is cheap."""
MARGIN_TOLERANCE = 0.01
"""Stop walking back when ``until`` holds by at most this margin."""
MAX_MEASUREMENTS = 8
"""Maximum number of measurements along a line."""
REPAIR_SHARE = 0.4
"""Maximum length of a repair run, as a share of a whole one."""
REACHED_SHARE = 0.9
"""A run with this share of the requested increase has reached its degree."""
_SCAN = (0.75, 0.5, 0.25)

GoalName = Literal["misclassified", "unseen"]
Run = Callable[[int, "Method", "nn.Module"], "Outcome"]
"""Executes run number n of a method without changing the model."""


class Search:
    """One search for a model that meets the targets.

    Args:
        model: The original model; not modified.
        method: The method to run. With the dial, γ is set from the targets; any other method runs once, unchanged.
        targets: The conditions to meet.
        looker: Measures scores.
        run: Executes a run.
        cost_of: Cost of a run of a method, in plain runs.
        settle: Called after interpolating weights, for example to recompute BatchNorm statistics.
        first_goal: Goal of the first run. If it reaches a goal other than ``misclassified``, but not ``until``, the
            second run starts from the original again.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        targets: Targets,
        looker: Looks,
        run: Run,
        cost_of: Callable[[Method], float],
        settle: Callable[[nn.Module], None],
        first_goal: GoalName | None = "misclassified",
    ) -> None:
        self._original, self._method, self._targets = model, method, targets
        self._looker, self._run, self._cost_of, self._settle = looker, run, cost_of, settle
        self._first_goal = first_goal
        self._budget = BUDGET if looker.is_limited else math.inf
        self._until = targets.metrics_until | {"ua"}
        self._lines: list[tuple[Segment, Outcome]] = []
        self._tries: list[Try] = []
        self._places: list[Place] = []
        self._run_cost = self._run_seconds = 0.0
        self._walk_back_cost = self._until_cost = self._keep_cost = 0.0

    @property
    def cost(self) -> float:
        """Cost so far, in plain runs."""
        return self._run_cost + self._looker.spent

    def go(self) -> Found:
        """Search until the targets are met or the budget is spent."""
        started = time.perf_counter()
        place = self._measure(Place(0, 0.0, Seen()), self._until)
        reached = self._reached(place)
        if reached:
            place = self._measure_fully(place)
        while not (reached and self._kept(place)):
            method = self._next_method(place, reached)
            if method is None:
                break
            place, reached = self._execute(method, self._places[0] if self._goes_beyond(reached) else place)
        met = reached and self._kept(place)
        binding, binding_seen = (None, None) if met else self._binding(place)
        if not met:
            place = self._compromise(place)
        elapsed = time.perf_counter() - started
        return Found(
            place=place,
            model=self._model_at(place),
            met=met,
            binding=binding,
            binding_seen=binding_seen,
            tries=tuple(self._tries),
            history=self._lines[place.run - 1][1].history if place.run else {},
            seconds=elapsed + self._run_seconds,
            cost=self.cost,
        )

    # Choosing and executing runs

    @property
    def _is_dialled(self) -> bool:
        return self._method.is_dialled

    def _next_method(self, place: Place, reached: bool) -> Method | None:
        """The next run; None if the budget does not allow another."""
        if not self._tries and not self._is_dialled:
            return self._method
        if len(self._tries) == MOST_RUNS or not self._is_dialled:
            return None
        assert isinstance(self._method, SteerableDescent)
        # Use the full retain-loss budget: ``keep`` limits the damage.
        budget = 1.0 if self._method.budget is None else self._method.budget
        # Conditions may require more forgetting than the goal ``unseen`` reaches; see :meth:`_goes_beyond`.
        goal = "misclassified" if self._tries else self._first_goal
        method = replace(self._method, gamma=self._gamma(place, reached), budget=budget, goal=goal)
        if not self._tries:
            return method
        remaining = self._budget - self.cost - self._walk_back_cost - self._retreat_cost
        return _shorten(method, min(remaining / self._cost_of(method), REPAIR_SHARE if reached else 1.0))

    def _gamma(self, place: Place, reached: bool) -> float:
        """γ of a run from ``place`` to slightly beyond the required degree."""
        if not self._looker.tells_degree:
            return 0.0 if reached else 1.0
        degree, required = place.seen.ua or 0.0, self._targets.asked_ua()
        if reached:
            required = max(degree, required or 0.0)
        # Forget everything and walk back if the required degree is unknown (conditions on other scores), or if the
        # last run fell short.
        fell_short = bool(self._tries) and not reached
        aim = 1.0 if required is None or fell_short else required + OVERSHOOT
        return round(gamma_for((min(aim, 1.0) - degree) / (1 - degree)), 4) if degree < 1 else 0.0

    def _goes_beyond(self, reached: bool) -> bool:
        """Whether the first run reached the degree of its own goal, but that was not enough."""
        if reached or len(self._tries) != 1 or self._first_goal == "misclassified":
            return False
        history = self._lines[0][1].history
        if not history.get("asked"):
            return False
        start, asked, end = (history[name][-1] for name in ("start", "asked", "reached"))
        return bool(end - start >= REACHED_SHARE * (asked - start))

    def _execute(self, method: Method, start: Place) -> tuple[Place, bool]:
        """Execute a run and walk back; returns the place and whether ``until`` holds there."""
        run_started = time.perf_counter()
        outcome = self._run(len(self._tries) + 1, method, self._model_at(start))
        self._run_seconds += outcome.seconds - (time.perf_counter() - run_started)
        self._run_cost += self._cost_of(method)
        segment = Segment(self._original)
        segment.set_end(outcome.model)
        self._lines.append((segment, outcome))
        before = self.cost
        landed = self._measure_fully(self._walk_back(len(self._lines)))
        reached = self._reached(landed)
        if reached and not self._kept(landed) and landed.share < 1 and self._can_measure:
            # Models on the line may be worse than its end.
            end = next(place for place in self._places if (place.run, place.share) == (landed.run, 1.0))
            end = self._measure_fully(end)
            landed = end if self._reached(end) and self._kept(end) else landed
        self._walk_back_cost = self.cost - before
        self._tries.append(Try(method, start, landed, reached, outcome.diverged))
        return landed, reached

    # Walking back

    def _walk_back(self, run: int) -> Place:
        """The place with the smallest share of a run at which ``until`` holds; the end if there is none."""
        end = self._measure(Place(run, 1.0, Seen()), self._until)
        high = end if self._reached(end) else self._scan_before_overshoot(run)
        if high is None:
            return end
        low = self._places[0]
        for iteration in range(MAX_MEASUREMENTS):
            converged = self._margin(high.seen) <= MARGIN_TOLERANCE or self._reached(low)
            if converged or not self._can_measure:
                break
            place = self._measure(Place(run, self._next_share(low, high, iteration), Seen()), self._until)
            low, high = (low, place) if self._reached(place) else (place, high)
        return high

    def _scan_before_overshoot(self, run: int) -> Place | None:
        """Scan a line for a place at which ``until`` holds although it fails at the end; None if there is none."""
        for share in _SCAN if self._targets.may_overshoot else ():
            if not self._can_measure:
                break
            place = self._measure(Place(run, share, Seen()), self._until)
            if self._reached(place):
                return place
        return None

    @property
    def _retreat_cost(self) -> float:
        """Cost to reserve for a retreat: quick measurements, a full one, and one of the original."""
        return self._until_cost + 3 * self._keep_cost

    @property
    def _can_measure(self) -> bool:
        """Whether the budget allows another measurement, the final full measurement and a retreat."""
        return self.cost + self._until_cost + self._keep_cost + self._retreat_cost <= self._budget

    def _next_share(self, low: Place, high: Place, iteration: int) -> float:
        """The next share to measure: false position and bisection in turn."""
        below, above = self._margin(low.seen), self._margin(high.seen)
        part = 0.5 if iteration % 2 else (MARGIN_TOLERANCE / 2 - below) / (above - below)
        return low.share + (high.share - low.share) * min(max(part, 0.1), 0.9)

    def _compromise(self, place: Place) -> Place:
        """The measured place that meets ``keep`` and is closest to ``until``."""
        if not self._kept(place):
            self._retreat(place)
        return min(self._fully_measured, key=self._distance)

    def _retreat(self, place: Place) -> None:
        """Walk from a place at which ``keep`` fails towards the original until it holds, by bisection."""
        keep = self._targets.metrics_keep
        low, high = 0.0, place.share
        # Reserve a full measurement after the quick ones, and one of the original in case it fails.
        quick, budget = self._keep_cost, self._budget - self._until_cost - 2 * self._keep_cost
        while place.run:
            for _ in range(MAX_MEASUREMENTS // 2):
                before = self.cost
                if before + quick > budget:
                    break
                middle = Place(place.run, (low + high) / 2, Seen())
                seen = self._looker.look(self._model_at(middle), keep, quick=True)
                quick = self.cost - before
                low, high = (middle.share, high) if self._kept(replace(middle, seen=seen)) else (low, middle.share)
            found = self._measure_fully(Place(place.run, low, Seen())) if low else None
            if found is None or self._kept(found):
                break
            low, high = 0.0, low
        if not any(self._kept(seen) for seen in self._fully_measured):
            self._measure_fully(self._places[0])

    @property
    def _fully_measured(self) -> list[Place]:
        """The places at which ``keep`` was measured too."""
        return [p for p in self._places if self._targets.metrics_keep <= p.seen.to_dict().keys()]

    def _distance(self, place: Place) -> tuple[float, float]:
        """The largest shortfall in ``keep``, then in ``until``."""

        def largest(conditions: Sequence[Condition]) -> float:
            return max((shortfall(c, place.seen) for c in conditions if not c.holds(place.seen)), default=0.0)

        return largest(self._targets.keep), largest(self._targets.until)

    # Measuring places

    def _binding(self, place: Place) -> tuple[Condition | None, Seen]:
        """The binding condition, in ``keep`` if ``until`` was reached, else in ``until``, and the scores there."""
        reached = [t.landed for t in self._tries if t.reached] or ([place] if self._reached(place) else [])
        if reached:
            nearest = min(reached, key=self._distance)
            return worst(self._targets.keep, nearest.seen), nearest.seen
        return worst(self._targets.until, place.seen), place.seen

    def _reached(self, place: Place) -> bool:
        return all(condition.holds(place.seen) for condition in self._targets.until)

    def _kept(self, place: Place) -> bool:
        return all(condition.holds(place.seen) for condition in self._targets.keep)

    def _margin(self, seen: Seen) -> float:
        """The margin by which ``until`` holds; negative if it fails."""
        return min(-shortfall(condition, seen) for condition in self._targets.until)

    def _measure_fully(self, place: Place) -> Place:
        """The place with all metrics in the conditions measured."""
        place = self._measure(place, self._until)
        before = self.cost
        place = self._measure(place, self._targets.metrics_keep)
        self._keep_cost = max(self._keep_cost, self.cost - before)
        return place

    def _measure(self, place: Place, metrics: Collection[str]) -> Place:
        """The place with these metrics measured too; recorded as a candidate for a compromise."""
        missing = set(metrics) - place.seen.to_dict().keys()
        if missing:
            before = self.cost
            seen = place.seen.with_more(self._looker.look(self._model_at(place), missing))
            place = replace(place, seen=seen)
            if missing == self._until:
                self._until_cost = max(self._until_cost, self.cost - before)
        self._places = [p for p in self._places if (p.run, p.share) != (place.run, place.share)]
        self._places.insert(0 if place.run == 0 else len(self._places), place)
        return place

    def _model_at(self, place: Place) -> nn.Module:
        """A model with the weights at a place."""
        if place.run == 0:
            return copy.deepcopy(self._original)
        segment, outcome = self._lines[place.run - 1]
        model = copy.deepcopy(outcome.model)
        segment.interpolate(model, place.share)
        if place.share != 1:
            self._settle(model)
        return model


def _shorten(method: SteerableDescent, share: float) -> Method | None:
    """The method with this share of its length; None if that is less than one epoch or iteration."""
    length = int(share * (method.epochs if method.iterations is None else method.iterations))
    if length < 1:
        return None
    return replace(method, epochs=length) if method.iterations is None else replace(method, iterations=length)
