"""A series in the (RA, UA) plane over many (class, seed) sets: runs, means by setting, median attainment surface.

For random, index and predicate forgetting the coordinates are 1 − |gap to the retrained model|, so that top right
is always best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradpivot.report.common.labels import Position
from gradpivot.report.common.plane import PLANE
from gradpivot.results import Point, Series, SolutionSet, Table, nondominated

__all__ = [
    "Cloud",
    "PlaneRun",
    "PlaneSetting",
    "attainment_surface",
    "cloud",
    "common_front",
    "table_clouds",
    "view_box",
]


@dataclass(frozen=True)
class PlaneRun:
    """A finite run with its position and solution set."""

    x: float
    y: float
    point: Point
    solution_set: SolutionSet


@dataclass(frozen=True)
class PlaneSetting:
    """Mean of one setting over its sets; a diverged run counts as (0, 0)."""

    x: float
    y: float
    label: str
    runs: int
    diverged: int


@dataclass(frozen=True)
class Cloud:
    """A series in the plane.

    Attributes:
        name: Name of the series.
        runs: All finite runs.
        settings: Mean of each setting over the complete sets.
        front: Median attainment surface by increasing x: what half of the complete sets reach.
        diverged: Number of diverged runs, which ``runs`` leaves out.
    """

    name: str
    runs: tuple[PlaneRun, ...]
    settings: tuple[PlaneSetting, ...]
    front: tuple[Position, ...]
    diverged: int


def cloud(row: Series) -> Cloud:
    """A series in the plane; empty if the kind needs a reference and no set has one."""
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
    return Cloud(row.name, tuple(runs), settings, tuple(attainment_surface(reached)), row.diverged)


def _setting(label: str, found: Sequence[tuple[Position, bool]]) -> PlaneSetting:
    n = len(found)
    x, y = (math.fsum(spot[axis] for spot, _ in found) / n for axis in (0, 1))
    return PlaneSetting(x, y, label, n, sum(lost for _, lost in found))


def attainment_surface(sets: Sequence[Sequence[Position]], percentile: float = 50) -> list[Position]:
    """Corners of the attainment surface: positions weakly dominated by at least this percentage of the sets.

    Unlike the front of the pooled points, it does not combine lucky runs of different sets.

    References:
        Grunert da Fonseca, Fonseca & Hall (2001), "Inferential performance assessment of stochastic optimisers
        and the attainment function".
    """
    if not sets:
        return []
    import moocore
    import numpy as np

    # Adding the origin counts sets in which all runs diverged. moocore minimises, hence the signs.
    rows = [(-x, -y, i) for i, spots in enumerate(sets) for x, y in [(0.0, 0.0), *spots]]
    table = np.array(rows)
    surface = moocore.eaf(table[:, :2], table[:, 2], percentiles=[percentile])
    return sorted((float(-x), float(-y)) for x, y in surface[:, :2])


def common_front(clouds: Sequence[Cloud]) -> list[PlaneSetting]:
    """Settings of all series with Pareto-optimal means, by increasing x."""
    every = [setting for c in clouds for setting in c.settings if setting.diverged < setting.runs]
    kept = nondominated([(s.x, s.y) for s in every])
    return sorted((s for s, keep in zip(every, kept, strict=True) if keep), key=lambda s: (s.x, -s.y))


def view_box(clouds: Sequence[Cloud]) -> tuple[float, float]:
    """X range to show, in percent: around the best means, or the whole plane if that would hide too much."""
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
    """All series of a table in the plane."""
    return [cloud(row) for row in table.series]
