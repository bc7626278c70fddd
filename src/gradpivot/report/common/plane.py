"""The (RA, UA) plane that figures and page draw: what is drawn, what is joined, where to look closer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from gradpivot.report.common.labels import Box, Position
from gradpivot.report.common.tables import measurable
from gradpivot.report.common.wording import is_number
from gradpivot.results import Frontier, Point

__all__ = ["finite", "plane_front", "spread_over", "staircase", "zoom_box"]

PLANE = ("ra", "ua")
T = TypeVar("T")


def finite(points: Iterable[Point]) -> list[Point]:
    """The points that can be drawn: not diverged, with RA and UA."""
    return [p for p in points if not p.diverged and all(is_number(getattr(p.scores, m)) for m in PLANE)]


def plane_front(frontier: Frontier) -> list[Point]:
    """The points that no other one of the method beats in (RA, UA), from low to high RA."""
    if not measurable(frontier):
        return []
    return sorted(frontier.nondominated(PLANE), key=lambda p: (p.scores.ra, -p.scores.ua))


def staircase(points: Iterable[Position]) -> list[Position]:
    """The upper edge of what points on a front dominate, from the left axis to the bottom one."""
    ordered = sorted(points)
    path = [(0.0, ordered[0][1])] if ordered else []
    for i, (x, y) in enumerate(ordered):
        below = ordered[i + 1][1] if i + 1 < len(ordered) else 0.0
        path += [(x, y), (x, below)]
    return path


def spread_over(found: Sequence[T], most: int) -> list[T]:
    """At most so many of them, from the first to the last."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]


def zoom_box(frontiers: Sequence[Frontier], models: Sequence[Point] = ()) -> Box | None:
    """Where the good runs are, in percent, or None if only the whole plane shows them.

    Good runs keep an RA within a few points of the best one, which the whole plane cannot show; the box holds
    all of them, whatever their UA, and the models (original, retrained) that lie there. It is as narrow as it
    can be with at least half of the best UA in it: a corner where nothing is forgotten is of no interest.
    """
    drawn = finite(p for f in frontiers for p in f.points)
    best = max((p.scores.ra for p in drawn), default=0.0)
    most = max((p.scores.ua for p in drawn), default=0.0)
    for margin in (0.03, 0.1, 0.3):
        good = [p for p in drawn if p.scores.ra >= best - margin]
        if len(good) > 1 and max(p.scores.ua for p in good) >= most / 2:
            good += [p for p in finite(models) if p.scores.ra >= best - margin]
            left, right = _padded([100 * p.scores.ra for p in good])
            bottom, top = _padded([100 * p.scores.ua for p in good])
            return left, bottom, right, top
    return None


def _padded(values: Sequence[float], least: float = 0.02) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = max(0.085 * (high - low), least)
    return low - pad, high + pad
