r"""Quick frontiers: models on the line between the original and a single run at γ = 1.

A run with the dial at γ = 1 gives θ₁. Interpolating between the original θ₀ and θ₁ gives all degrees of forgetting for
the cost of forward passes (:mod:`gradpivot.dial.segment`). Points are placed by repeatedly halving the widest gap
between neighbours in RA or in the degree of forgetting (UA for a class, mean uncertainty for records).

``benchmarks/frontier.py`` compares quick frontiers with one run per point; see ``docs/frontier.md``.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gradpivot.dial import Segment, gamma_for
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import predictions
from gradpivot.methods import SteerableDescent
from gradpivot.runs import Prepared, Result, Running
from gradpivot.runtime import evaluating
from gradpivot.targets.looking import FORWARD

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scored
    from gradpivot.loop import Progress
    from gradpivot.methods import Method

__all__ = ["POINTS", "Continuation", "Cost", "check_quick", "continuation", "widest_gap"]

POINTS = 11
Degree = Callable[["nn.Module", "Scored"], float]
"""Maps a model and its scores to its degree of forgetting, as a share of the degree at γ = 1."""
_BELOW_THE_END = 0.9999
"""Largest γ of a point before the end; a degree may already be reached there."""
NARROWEST = 2.0**-10
"""Gaps narrower than this are not halved, because the forget set may be forgotten abruptly."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a frontier in plain runs, that is, in gradients of one run of the method.

    Attributes:
        runs: Number of unlearning runs.
        scored: Number of scored models.
        scoring: Cost of scoring one model; a forward pass counts as a third of a gradient.
    """

    runs: int
    scored: int
    scoring: float

    @property
    def total(self) -> float:
        """Total cost in plain runs."""
        return self.runs + self.scored * self.scoring

    def of_sweep(self, settings: int) -> float:
        """Cost of running and scoring this many settings."""
        return settings * (1 + self.scoring)


class Continuation(NamedTuple):
    """The points of a quick frontier, from the original to the run.

    Attributes:
        results: One result per point, each with its own model.
        shares: Position of each point on the line: 0 is the original, 1 the run.
        original: The scores of the original.
        cost: The cost of the frontier.
    """

    results: tuple[Result, ...]
    shares: tuple[float, ...]
    original: Scored
    cost: Cost


def continuation(prepared: Prepared, *, points: int = POINTS, progress: Progress | None = None) -> Continuation:
    """Run a method once at γ = 1, and score models on the line between the original and the result.

    Args:
        prepared: A run of a method with the dial; its γ is ignored.
        points: Maximum number of points, including the original and the run. Stops early if no gap can be halved.
        progress: Called with (points done, total points).

    Raises:
        GradPivotError: If the method does not use the dial, ``points`` is less than two, or the run diverged.
    """
    method = check_quick(prepared.method, points).to_the_end(prepared.split.kind, prepared.running.task)
    prepared = replace(prepared, method=method)
    model, split, running = prepared.model, prepared.split, prepared.running
    report = progress or (lambda done, total: None)
    report(0, points)
    run = prepared.run()
    if run.diverged:
        raise GradPivotError(
            f"the run to γ = 1 diverged at step {run.diverged['step']}, so there is no frontier; lower lr"
        )

    def score(candidate: nn.Module) -> Scored:
        return prepared.scorer.scores(candidate, split)

    original = prepared.original()
    degree = _degree(run, model, original, split, running)
    line = _Line(model, run, method, original, score, degree, partial(running.settle, method, split, model))
    while line.count < points:
        report(line.count, points)
        share = widest_gap(line.scores())
        if share is None:
            break
        line.add(share)
    report(points, points)
    cost = Cost(runs=1, scored=line.count, scoring=_scoring_cost(prepared, method))
    results = tuple(replace(one, already_forgotten=prepared.already_forgotten(one.model)) for one in line.results())
    return Continuation(results, line.shares, original, cost)


def widest_gap(seen: Sequence[tuple[float, float, float]]) -> float | None:
    """The middle of the widest gap between neighbours in RA or in the degree of forgetting.

    Args:
        seen: (share, RA, degree) of each point, sorted by share.

    Returns:
        A new share; None if all gaps are zero or too narrow to halve.
    """
    gaps = [
        (max(abs(b[1] - a[1]), abs(b[2] - a[2])), (a[0] + b[0]) / 2)
        for a, b in itertools.pairwise(seen)
        if b[0] - a[0] > NARROWEST
    ]
    # Ties go to the gap closest to the original.
    width, middle = max(gaps, key=lambda gap: (gap[0], -gap[1]), default=(0.0, 0.0))
    return middle if width > 0 else None


class _Point(NamedTuple):
    model: nn.Module
    scores: Scored
    degree: float
    seconds: float


class _Line:
    """Scored models on the line between the original and a run."""

    def __init__(
        self,
        start: nn.Module,
        run: Result,
        method: SteerableDescent,
        original: Scored,
        score: Callable[[nn.Module], Scored],
        degree: Degree,
        settle: Callable[[nn.Module], None],
    ) -> None:
        self._run, self._method = run, method
        self._score, self._degree, self._settle = score, degree, settle
        self._segment = Segment(start)
        self._segment.set_end(run.model)
        first = copy.deepcopy(run.model)
        # Keep the run's modes and flags, with the original's weights and buffers.
        first.load_state_dict(start.state_dict())
        self._points: dict[float, _Point] = {}
        self._put(0.0, first, original, 0.0)
        self._put(1.0, run.model, run.scores, run.evaluation_seconds)

    @property
    def count(self) -> int:
        return len(self._points)

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(sorted(self._points))

    def scores(self) -> list[tuple[float, float, float]]:
        points = ((share, self._points[share]) for share in self.shares)
        return [(share, point.scores.ra, point.degree) for share, point in points]

    def add(self, share: float) -> None:
        started = time.perf_counter()
        model = copy.deepcopy(self._run.model)
        self._segment.interpolate(model, share)
        self._settle(model)
        scores = self._score(model)
        self._put(share, model, scores, time.perf_counter() - started)

    def _put(self, share: float, model: nn.Module, scores: Scored, seconds: float) -> None:
        self._points[share] = _Point(model, scores, self._degree(model, scores), seconds)

    def results(self) -> tuple[Result, ...]:
        return tuple(self._result(share) for share in self.shares)

    def _gamma(self, share: float) -> float:
        """γ of the degree at a point; 1 is the run's own."""
        gamma = round(gamma_for(self._points[share].degree), 4)
        return gamma if share == 1 else min(gamma, _BELOW_THE_END)

    def _result(self, share: float) -> Result:
        point = self._points[share]
        return Result(
            model=point.model,
            scores=point.scores,
            method=replace(self._method, gamma=self._gamma(share)),
            history=self._run.history if share == 1 else {},
            # Every point but the original needs the whole run.
            seconds=self._run.seconds if share else 0.0,
            evaluation_seconds=point.seconds,
            diverged=None,
            provenance={**self._run.provenance, "share": share},
        )


def _degree(run: Result, original: nn.Module, before: Scored, split: ForgetSplit, running: Running) -> Degree:
    """Create the degree measure. It is relative to the requested degree, so a run that fell short is below 1."""
    if not run.method.uses_validation(split.kind, running.task):
        return lambda model, scores: _share(scores.ua, before.ua, 1.0)

    def uncertainty(model: nn.Module) -> float:
        with evaluating(model):
            found = predictions(
                model, split.train, split.forget_indices, running.task,
                workers=running.workers, replicas=running.replicas,
            )  # fmt: skip
        return float(1 - found.confidence.mean())

    # A run with nothing to forget has an empty history.
    asked = run.history.get("asked")
    start = uncertainty(original)
    most = float(asked[-1]) if asked else start
    return lambda model, scores: _share(uncertainty(model), start, most)


def _share(reached: float, start: float, most: float) -> float:
    return (reached - start) / (most - start) if most > start else 0.0


def check_quick(method: Method, points: int | None = None) -> SteerableDescent:
    """The method, if it can be traced quickly.

    Raises:
        GradPivotError: If the method does not use the dial, or ``points`` is less than two.
    """
    if not isinstance(method, SteerableDescent) or not method.is_dialled:
        raise GradPivotError(
            f"a quick trace needs the dial, which {method.label} does not use; use CUP(), set gamma=1 for WS and other "
            f"methods, or trace without quick"
        )
    if points is not None and points < 2:
        raise GradPivotError(f"a quick trace of {points} points is too short; use 2 or more")
    return method


def _scoring_cost(prepared: Prepared, method: SteerableDescent) -> float:
    """Cost of scoring a model, in plain runs."""
    split = prepared.split
    passes = prepared.scorer.passes(split)
    if method.uses_validation(split.kind, prepared.running.task):
        # Measuring the uncertainty of records takes another pass over the forget set.
        passes += len(split.forget_indices)
    return FORWARD * passes / method.gradients(split)
