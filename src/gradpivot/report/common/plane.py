"""The (RA, UA) plane that figures and pages draw: finite points, Pareto fronts, zoom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from gradpivot.report.common.labels import Box, Position
from gradpivot.report.common.tables import measurable
from gradpivot.report.common.wording import is_number
from gradpivot.results import Frontier, Point

__all__ = ["finite", "plane_front", "sample_evenly", "staircase", "zoom_box"]

PLANE = ("ra", "ua")
T = TypeVar("T")


def finite(points: Iterable[Point]) -> list[Point]:
    """The points that can be drawn: not diverged, with finite RA and UA."""
    return [p for p in points if not p.diverged and all(is_number(getattr(p.scores, m)) for m in PLANE)]


def plane_front(frontier: Frontier) -> list[Point]:
    """The method's points that are Pareto-optimal in (RA, UA), by increasing RA."""
    if not measurable(frontier):
        return []
    return sorted(frontier.nondominated(PLANE), key=lambda p: (p.scores.ra, -p.scores.ua))


def staircase(points: Iterable[Position]) -> list[Position]:
    """The boundary of the region that the points of a front dominate, from the y axis to the x axis."""
    ordered = sorted(points)
    path = [(0.0, ordered[0][1])] if ordered else []
    for i, (x, y) in enumerate(ordered):
        below = ordered[i + 1][1] if i + 1 < len(ordered) else 0.0
        path += [(x, y), (x, below)]
    return path


def sample_evenly(items: Sequence[T], limit: int) -> list[T]:
    """At most ``limit`` items, evenly spaced from the first to the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def zoom_box(frontiers: Sequence[Frontier], models: Sequence[Point] = ()) -> Box | None:
    """The box around the good runs, in percent, or None if no zoom helps.

    Good runs have an RA within a few points of the best. The box holds all of them and the models (original,
    retrained) near them. It is the narrowest one that still reaches half of the best UA, so that it does not zoom
    into a corner where nothing is forgotten.
    """
    drawn = finite(p for f in frontiers for p in f.points)
    best = max((p.scores.ra for p in drawn), default=0.0)
    most = max((p.scores.ua for p in drawn), default=0.0)
    for margin in (0.03, 0.1, 0.3):
        runs = [p for p in drawn if p.scores.ra >= best - margin]
        good = runs + [p for p in finite(models) if p.scores.ra >= best - margin]
        if runs and len(good) > 1 and max(p.scores.ua for p in runs) >= most / 2:
            left, right = _padded([100 * p.scores.ra for p in good])
            bottom, top = _padded([100 * p.scores.ua for p in good])
            return left, bottom, right, top
    return None


def _padded(values: Sequence[float], min_pad: float = 0.02) -> tuple[float, float]:
    low, high = min(values), max(values)
    # Equal values get half a point, so that the axis doesn't count thousandths.
    pad = max(0.085 * (high - low), min_pad) if high > low else 0.5
    return low - pad, high + pad
