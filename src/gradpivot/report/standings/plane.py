"""A series in the plane of RA and UA over many (class, seed) sets: raw runs, means by setting, median attainment.

For random, index and predicate forgetting the plane is 1 − |gap to the retrained model|, so that top right is
best everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradpivot.report.common.labels import Position
from gradpivot.report.common.plane import PLANE
from gradpivot.results import Point, Series, SolutionSet, Table, nondominated

__all__ = ["Cloud", "PlaneRun", "PlaneSetting", "attained", "cloud", "common_front", "table_clouds", "view_box"]


@dataclass(frozen=True)
class PlaneRun:
    """A run that stayed finite: where it lies, and whose it is."""

    x: float
    y: float
    point: Point
    of: SolutionSet


@dataclass(frozen=True)
class PlaneSetting:
    """One setting over the sets it was run on; a diverged run counts as (0, 0)."""

    x: float
    y: float
    label: str
    runs: int
    diverged: int


@dataclass(frozen=True)
class Cloud:
    """A series in the plane.

    Attributes:
        name: The series.
        runs: Every finite run.
        settings: The mean of each setting over the whole sets: markers, not models.
        front: The median attainment surface: what half of the whole sets reach or surpass, from low to high x.
        diverged: How many runs are missing from ``runs``.
    """

    name: str
    runs: tuple[PlaneRun, ...]
    settings: tuple[PlaneSetting, ...]
    front: tuple[Position, ...]
    diverged: int


def cloud(row: Series) -> Cloud:
    """A series in the plane; empty where the kind needs a reference and no set has one."""
    runs: list[PlaneRun] = []
    by_label: dict[str, list[tuple[Position, bool]]] = {}
    reached: list[list[Position]] = []
    for s in row.sets:
        frontier = s.frontier
        if frontier.kind != "class" and frontier.reference is None:
            continue
        whole = s.runs == row.largest
        spots = [(v[0], v[1]) for v in frontier.vectors(PLANE)]
        if whole:
            reached.append([spot for spot, p in zip(spots, frontier.points, strict=True) if not p.diverged])
        for (x, y), point in zip(spots, frontier.points, strict=True):
            if not point.diverged:
                runs.append(PlaneRun(x, y, point, s))
            if not whole:
                continue
            spot = (0.0, 0.0) if point.diverged else (x, y)
            by_label.setdefault(point.label, []).append((spot, point.diverged is not None))
    settings = tuple(_setting(label, found) for label, found in by_label.items())
    return Cloud(row.name, tuple(runs), settings, tuple(attained(reached)), row.diverged)


def _setting(label: str, found: Sequence[tuple[Position, bool]]) -> PlaneSetting:
    n = len(found)
    x, y = (math.fsum(spot[axis] for spot, _ in found) / n for axis in (0, 1))
    return PlaneSetting(x, y, label, n, sum(lost for _, lost in found))


def attained(sets: Sequence[Sequence[Position]], percentile: float = 50) -> list[Position]:
    """The corners of the attainment surface: positions that at least this share of the sets weakly dominates.

    Unlike a front of pooled points it does not put the luck of one set together with that of another.

    References:
        Grunert da Fonseca, Fonseca & Hall (2001), "Inferential performance assessment of stochastic optimisers
        and the attainment function".
    """
    if not sets:
        return []
    import moocore
    import numpy as np

    # Every set reaches the origin, so that one in which all diverged is counted as well. moocore minimises.
    rows = [(-x, -y, i) for i, spots in enumerate(sets) for x, y in [(0.0, 0.0), *spots]]
    table = np.array(rows)
    surface = moocore.eaf(table[:, :2], table[:, 2], percentiles=[percentile])
    return sorted((float(-x), float(-y)) for x, y in surface[:, :2])


def common_front(clouds: Sequence[Cloud]) -> list[PlaneSetting]:
    """The settings of all series whose means no other mean beats, from low to high x."""
    every = [setting for c in clouds for setting in c.settings if setting.diverged < setting.runs]
    kept = nondominated([(s.x, s.y) for s in every])
    return sorted((s for s, keep in zip(every, kept, strict=True) if keep), key=lambda s: (s.x, -s.y))


def view_box(clouds: Sequence[Cloud]) -> tuple[float, float]:
    """From which x on to look, in percent: near the best means, or the whole plane if they are not there."""
    drawn = [s for c in clouds for s in c.settings if s.diverged < s.runs]
    if not drawn:
        return -3.0, 103.0
    best, most = max(s.x for s in drawn), max(s.y for s in drawn)
    for margin in (0.03, 0.1, 0.3):
        good = [s for s in drawn if s.x >= best - margin]
        if 4 * len(good) >= 3 * len(drawn) and 2 * max(s.y for s in good) >= most:
            return 100 * (best - 1.1 * margin), 100 + 8 * margin
    return -3.0, 103.0


def table_clouds(table: Table) -> list[Cloud]:
    """Every series of a table in the plane."""
    return [cloud(row) for row in table.series]
