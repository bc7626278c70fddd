"""What the standings' page draws: the plane, hypervolumes, scores along γ.

With many runs the single points are thinned out, and the page says so; the
tables, means and steps always rest on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.report.common.wording import MISSING, gap_kind
from gradpivot.report.standings.plane import Cloud, cloud, common_front, table_clouds, view_box
from gradpivot.report.standings.wording import others
from gradpivot.results import DialCurve, Estimate, Standings, Table, forget_words

__all__ = ["standings_payload"]

MOST_DRAWN = 4_000
"""More single points than this a table's plane does not draw."""
MOST_IN_ALL = 16_000
"""And the page holds no more than this, so that it stays small with many tables."""


def standings_payload(standings: Standings) -> dict[str, Any]:
    """What the script draws: small, rounded, and thinned where there are too many runs."""
    share = min(MOST_DRAWN, max(1, MOST_IN_ALL // max(1, len(standings.tables))))
    return {
        "metrics": [{"key": name, "name": find_metric(name).symbol} for name in standing_metrics()],
        "tables": [_payload(table, share) for table in standings.tables],
    }


def _payload(table: Table, most: int) -> dict[str, Any]:
    clouds = table_clouds(table)
    every = max(1, math.ceil(sum(len(c.runs) for c in clouds) / most))
    labels: dict[str, int] = {}
    places = {place: i for i, place in enumerate(table.places)}
    drawn = {
        "series": [_series(c, every, labels, places) for c in clouds],
        "common": [[_round(s.x), _round(s.y)] for s in common_front(clouds)],
        "models": _models(table),
        "view": list(view_box(clouds)),
        "volumes": _volumes(table),
        "dials": [_dial(row.name, dial) for row in table.series for dial in row.dials],
        "sets": [f"{forget_words(table.kind, forget)}, seed {seed}" for forget, seed in places],
        "gap": gap_kind(table.kind),
        "every": every,
    }
    return {**drawn, "labels": list(labels)}


def _round(value: float) -> float:
    return round(value, 4)


def _series(found: Cloud, every: int, labels: dict[str, int], places: dict[tuple[str, int], int]) -> dict[str, Any]:
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
            **{m: [_round(getattr(r.point.scores, m)) for r in kept] for m in standing_metrics()},
            "label": [number(r.point.label) for r in kept],
            "set": [places[r.of.place] for r in kept],
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
    measures = ("hypervolume", "hypervolume_without_mia", "hypervolume_svc")
    return {
        "names": [row.name for row in rows],
        **{m: [_bounds(found.over_sets) if (found := row.measures[m]) else None for row in rows] for m in measures},
    }


def _bounds(value: Estimate) -> list[float]:
    low = value.mean if value.low is None else value.low
    high = value.mean if value.high is None else value.high
    return [_round(value.mean), _round(low), _round(high), value.n]


def _dial(name: str, dial: DialCurve) -> dict[str, Any]:
    beside = others(dial.others)
    return {
        "name": name if beside == MISSING else f"{name}, {beside}",
        "values": list(dial.values),
        "diverged": list(dial.diverged),
        **{m: [_bounds(e) if e else None for e in dial.scores[m]] for m in standing_metrics()},
    }
