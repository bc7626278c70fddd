"""Data for the standings page: the plane, hypervolumes, scores against γ.

The page thins single runs if there are many and says so; tables, means and fronts use all runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.report.common.wording import MISSING, judged_by_gap
from gradpivot.report.standings.grids import ranked_measures
from gradpivot.report.standings.plane import Cloud, cloud, common_front, table_clouds, view_box
from gradpivot.report.standings.wording import others
from gradpivot.results import DialCurve, Estimate, Standings, Table, forget_words

__all__ = ["standings_payload"]

MAX_PLANE_POINTS = 4_000
"""Maximum number of single runs in one table's plane."""
MAX_PAGE_POINTS = 16_000
"""Maximum number of single runs on the page, which limits its size."""


def standings_payload(standings: Standings) -> dict[str, Any]:
    """Data for the page's script, rounded and thinned."""
    share = min(MAX_PLANE_POINTS, max(1, MAX_PAGE_POINTS // max(1, len(standings.tables))))
    return {
        "metrics": [{"key": name, "name": find_metric(name).symbol} for name in _standing(standings)],
        "tables": [_payload(table, share) for table in standings.tables],
    }


def _standing(standings: Standings) -> list[str]:
    """The metrics of H and Δ of any table; each table has its own among them."""
    return list(dict.fromkeys(name for table in standings.tables for name in standing_metrics(table.kind)))


def _payload(table: Table, most: int) -> dict[str, Any]:
    clouds = table_clouds(table)
    every = max(1, math.ceil(sum(len(c.runs) for c in clouds) / most))
    labels: dict[str, int] = {}
    places = {place: i for i, place in enumerate(table.places)}
    drawn = {
        "metrics": list(standing_metrics(table.kind)),
        "series": [_series(c, every, labels, places, table.kind) for c in clouds],
        "common": [[_round(s.x), _round(s.y)] for s in common_front(clouds)],
        "models": _models(table),
        "view": list(view_box(clouds)),
        "volumes": _volumes(table),
        "dials": [_dial(row.name, dial, table.kind) for row in table.series for dial in row.dials],
        "sets": [f"{forget_words(table.kind, forget)}, seed {seed}" for forget, seed in places],
        "gap": judged_by_gap(table.kind),
        "every": every,
    }
    return {**drawn, "labels": list(labels)}


def _round(value: float) -> float:
    return round(value, 4)


def _series(
    found: Cloud, every: int, labels: dict[str, int], places: dict[tuple[str, int], int], kind: str
) -> dict[str, Any]:
    def number(label: str) -> int:
        return labels.setdefault(label, len(labels))

    kept = found.runs[::every]
    settings = [s for s in found.settings if s.diverged < s.runs]
    return {
        "name": found.name,
        "diverged": found.diverged,
        "runs": {
            "x": [_round(r.x) for r in kept],
            "y": [_round(r.y) for r in kept],
            **{m: [_round(getattr(r.point.scores, m)) for r in kept] for m in standing_metrics(kind)},
            "label": [number(r.point.label) for r in kept],
            "set": [places[r.solution_set.place] for r in kept],
        },
        "means": {
            "x": [_round(s.x) for s in settings],
            "y": [_round(s.y) for s in settings],
            "label": [number(s.label) for s in settings],
            "runs": [s.runs for s in settings],
            "diverged": [s.diverged for s in settings],
        },
        "front": [[_round(x), _round(y)] for x, y in found.front],
    }


def _models(table: Table) -> list[dict[str, Any]]:
    found = []
    for name, row in (("original", table.original), ("retrained", table.retrained)):
        runs: Sequence[Any] = cloud(row).runs if row else ()
        if runs:
            x, y = (math.fsum(getattr(r, axis) for r in runs) / len(runs) for axis in ("x", "y"))
            found.append({"name": name, "x": _round(x), "y": _round(y)})
    return found


def _volumes(table: Table) -> dict[str, Any]:
    rows = [row for row in (table.retrained, *table.series) if row]
    measures = [
        m for m in ("hypervolume", "hypervolume_without_mia", "hypervolume_svc") if m in ranked_measures(table.kind)
    ]
    return {
        "names": [row.name for row in rows],
        **{m: [_bounds(found.over_sets) if (found := row.measures[m]) else None for row in rows] for m in measures},
    }


def _bounds(value: Estimate) -> list[float]:
    low = value.mean if value.low is None else value.low
    high = value.mean if value.high is None else value.high
    return [_round(value.mean), _round(low), _round(high), value.n]


def _dial(name: str, dial: DialCurve, kind: str) -> dict[str, Any]:
    beside = others(dial.others)
    return {
        "name": name if beside == MISSING else f"{name}, {beside}",
        "values": list(dial.values),
        "diverged": list(dial.diverged),
        **{m: [_bounds(e) if e else None for e in dial.scores[m]] for m in standing_metrics(kind)},
    }
