r"""The frontier of one run: points on the line from the original to a model that has forgotten all that γ asks for.

A method under the dial at γ = 1 gives θ₁; between the original θ₀ and it lies, for forward passes alone, everything
from "nothing forgotten" to "all of it" (:mod:`gradpivot.dial.segment`). Points are put where the frontier moves most:
the widest gap between neighbours in RA or in the degree of forgetting (UA for a class, the doubt for records, of
which a few samples have next to no UA) is halved, again and again.

Twenty runs give twenty models, each the end of a path of its own; here all lie on one line. What that loses is
measured in ``benchmarks/frontier.py`` and told in ``docs/frontier.md``.
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

__all__ = ["POINTS", "Continuation", "Cost", "continuation", "to_the_end", "widest_gap"]

POINTS = 11
Degree = Callable[["nn.Module", "Scored"], float]
"""From a model and its scores to the share of what γ = 1 asks for that it has forgotten."""
NARROWEST = 2.0**-10
"""Shares nearer than this are not told apart: where the forget set falls at once, there is nothing in between."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a frontier took, in plain runs: the gradients that one run of the method takes for its batches.

    Attributes:
        runs: Unlearning runs.
        scored: Models that were scored.
        scoring: What scoring one takes, a forward pass of a sample counting as a third of a gradient.
    """

    runs: int
    scored: int
    scoring: float

    @property
    def total(self) -> float:
        """All of it, in plain runs."""
        return self.runs + self.scored * self.scoring

    def of_sweep(self, settings: int) -> float:
        """The same for a run for each of so many settings, each scored."""
        return settings * (1 + self.scoring)


class Continuation(NamedTuple):
    """The points of a line, from the original to the run.

    Attributes:
        results: One for each point, in the order of the line, with a model of its own.
        shares: Where on the line each is: 0 is the original, 1 the run.
        original: The scores of the original.
        cost: What it took.
    """

    results: tuple[Result, ...]
    shares: tuple[float, ...]
    original: Scored
    cost: Cost


def continuation(prepared: Prepared, *, points: int = POINTS, progress: Progress | None = None) -> Continuation:
    """Run a method once, to γ = 1, and score models on the line to it.

    Args:
        prepared: A run of a method under the dial; its γ does not matter.
        points: How many, the original and the run included; fewer if there is nothing more to tell apart.
        progress: Called with (points done, points in all).

    Raises:
        GradPivotError: for another method, fewer than two points, or a run that diverged.
    """
    method = to_the_end(prepared.method, points)
    prepared = replace(prepared, method=method)
    model, split, running = prepared.model, prepared.split, prepared.running
    tell = progress or (lambda done, total: None)
    tell(0, points)
    run = prepared.run()
    if run.diverged:
        raise GradPivotError(
            f"the run to γ = 1 diverged at step {run.diverged['step']}, and there is no line to it; lower lr"
        )

    def scored(one: nn.Module) -> Scored:
        return prepared.scorer.scores(one, split)

    original = prepared.original()
    degree = _degree(run, model, original, split, running)
    line = _Line(model, run, method, original, scored, degree, partial(running.settle, split, method))
    while line.count < points:
        tell(line.count, points)
        share = widest_gap(line.seen())
        if share is None:
            break
        line.look(share)
    tell(points, points)
    cost = Cost(runs=1, scored=line.count, scoring=_scoring(prepared, method))
    return Continuation(line.results(), line.shares, original, cost)


def widest_gap(seen: Sequence[tuple[float, float, float]]) -> float | None:
    """The middle of the two neighbours that lie farthest apart in RA or in the degree of forgetting.

    Args:
        seen: (share, RA, degree) in the order of the shares.

    Returns:
        A share between two that are there; None if no two neighbours differ, or only such as are next to each other.
    """
    gaps = [
        (max(abs(b[1] - a[1]), abs(b[2] - a[2])), (a[0] + b[0]) / 2)
        for a, b in itertools.pairwise(seen)
        if b[0] - a[0] > NARROWEST
    ]
    # Of equal gaps the first, which leaves most on the side of the original.
    width, middle = max(gaps, key=lambda gap: (gap[0], -gap[1]), default=(0.0, 0.0))
    return middle if width > 0 else None


class _Point(NamedTuple):
    model: nn.Module
    scores: Scored
    degree: float
    seconds: float


class _Line:
    """Models between the original and a run, by their share of the way."""

    def __init__(
        self,
        start: nn.Module,
        run: Result,
        method: SteerableDescent,
        original: Scored,
        scored: Callable[[nn.Module], Scored],
        degree: Degree,
        settle: Callable[[nn.Module], None],
    ) -> None:
        self._run, self._method = run, method
        self._scored, self._degree, self._settle = scored, degree, settle
        self._segment = Segment(start)
        self._segment.set_end(run.model)
        first = copy.deepcopy(run.model)
        # The run's own modes and flags, the original's weights and buffers.
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

    def seen(self) -> list[tuple[float, float, float]]:
        found = ((share, self._points[share]) for share in self.shares)
        return [(share, point.scores.ra, point.degree) for share, point in found]

    def look(self, share: float) -> None:
        started = time.perf_counter()
        model = copy.deepcopy(self._run.model)
        self._segment.interpolate(model, share)
        self._settle(model)
        scores = self._scored(model)
        self._put(share, model, scores, time.perf_counter() - started)

    def _put(self, share: float, model: nn.Module, scores: Scored, seconds: float) -> None:
        self._points[share] = _Point(model, scores, self._degree(model, scores), seconds)

    def results(self) -> tuple[Result, ...]:
        return tuple(self._result(share) for share in self.shares)

    def _result(self, share: float) -> Result:
        point = self._points[share]
        return Result(
            model=point.model,
            scores=point.scores,
            method=replace(self._method, gamma=round(gamma_for(point.degree), 4)),
            history=self._run.history if share == 1 else {},
            # What it takes to have this model: the run that the line leads to.
            seconds=self._run.seconds if share else 0.0,
            evaluation_seconds=point.seconds,
            diverged=None,
            provenance={**self._run.provenance, "share": share},
        )


def _degree(run: Result, original: nn.Module, before: Scored, split: ForgetSplit, running: Running) -> Degree:
    """Which share of what γ = 1 asks for a point has forgotten; a run that fell short says so by it, too."""
    if not run.method.uses_validation(split.kind, running.task):
        return lambda model, scores: _share(scores.ua, before.ua, 1.0)

    def doubt(model: nn.Module) -> float:
        with evaluating(model):
            seen = predictions(
                model, split.train, split.forget_indices, running.task,
                workers=running.workers, replicas=running.replicas,
            )  # fmt: skip
        return float(1 - seen.confidence.mean())

    # A run that had nothing to forget has no history, and its line no length.
    asked = run.history.get("asked")
    start = doubt(original)
    most = float(asked[-1]) if asked else start
    return lambda model, scores: _share(doubt(model), start, most)


def _share(reached: float, start: float, most: float) -> float:
    return (reached - start) / (most - start) if most > start else 0.0


def to_the_end(method: Method, points: int | None = None) -> SteerableDescent:
    """The method at γ = 1.

    Raises:
        GradPivotError: for a method that is not under the dial, or fewer than two points.
    """
    if not isinstance(method, SteerableDescent) or not method.is_dialled:
        raise GradPivotError(
            f"a quick trace follows the dial, and {method.label} is not under it; use CUP(), or WS and others with "
            f"gamma=1, or a plain trace"
        )
    if points is not None and points < 2:
        raise GradPivotError(f"a quick trace of {points} points has no line; ask for 2 or more")
    return replace(method, gamma=1.0)


def _scoring(prepared: Prepared, method: SteerableDescent) -> float:
    """Scoring a model, in plain runs."""
    split = prepared.split
    passes = prepared.scorer.passes(split)
    if method.uses_validation(split.kind, prepared.running.task):
        # The doubt about records takes a pass of its own.
        passes += len(split.forget_indices)
    return FORWARD * passes / method.gradients(split)
