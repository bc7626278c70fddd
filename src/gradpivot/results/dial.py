"""Controllability: how evenly unlearning follows the knob. The paper claims it but does not measure it.

Measured along one knob with all other settings equal: Spearman's ρ(knob, UA), the largest jump in UA between
neighbouring values, and the share of runs that did not diverge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gradpivot.results._estimate import Estimate, estimate, spearman
from gradpivot.results._json import plain, select
from gradpivot.results.frontier import Point, compared_metrics, varying

__all__ = ["DialCurve", "dials", "sort_key"]

MIN_KNOB_VALUES = 3
"""Two values are always monotonic."""


@dataclass(frozen=True, kw_only=True)
class DialCurve:
    """A series along its knob with all other settings equal.

    Attributes:
        knob: Name of the setting: ``gamma``.
        others: The other settings that vary in the series, such as ``{"lr": 0.01}``.
        values: The values of the knob, ascending.
        rho: Spearman's ρ(knob, UA) per set, over the sets, finite runs only; None if UA does not vary.
        jump: The largest jump in UA between neighbours per set, over the sets, finite runs only.
        largest_jump: The largest jump of all sets.
        finite: Share of runs that did not diverge.
        runs: Number of runs.
        sets: Number of (forget, seed) sets.
        scores: Each score at each value of the knob, over the finite runs of all sets; None if all diverged.
        diverged: Number of diverged runs at each value.
    """

    knob: str
    others: Mapping[str, Any]
    values: tuple[float, ...]
    rho: Estimate | None
    jump: Estimate | None
    largest_jump: float | None
    finite: float
    runs: int
    sets: int
    scores: Mapping[str, tuple[Estimate | None, ...]]
    diverged: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {
            **select(self, "knob", "others", "values"),
            "spearman": plain(self.rho),
            **select(self, "jump", "largest_jump", "finite", "runs", "sets", "scores", "diverged"),
        }


def dials(sets: Sequence[Sequence[Point]], knob: str = "gamma", kind: str = "class") -> list[DialCurve]:
    """The dial curves of a series, one for each combination of other settings with at least three knob values.

    Args:
        sets: The runs of each (forget, seed) set.
        knob: Name of the setting. Runs with another knob are left out.
        kind: Kind of split that was forgotten.
    """
    families: dict[str, dict[int, list[Point]]] = {}
    for index, points in enumerate(sets):
        for point in points:
            if point.knob is not None and point.settings.get(knob) == point.knob:
                others = repr([item for item in point.settings.items() if item[0] != knob])
                families.setdefault(others, {}).setdefault(index, []).append(point)
    curves = [
        lines
        for lines in families.values()
        if len({p.knob for line in lines.values() for p in line}) >= MIN_KNOB_VALUES
    ]
    names = varying([next(iter(lines.values()))[0] for lines in curves], knob)
    found = [_dial(list(lines.values()), knob, names, kind) for lines in curves]
    return sorted(found, key=lambda dial: [sort_key(value) for value in dial.others.values()])


def _dial(lines: Sequence[Sequence[Point]], knob: str, names: Sequence[str], kind: str) -> DialCurve:
    runs = [point for line in lines for point in line]
    columns: dict[float, list[Point]] = {}
    for point in runs:
        columns.setdefault(float(point.knob or 0.0), []).append(point)
    values = tuple(sorted(columns))
    finite = [sorted((p for p in line if not p.diverged), key=lambda p: p.knob or 0.0) for line in lines]
    jumps = [max(abs(b.scores.ua - a.scores.ua) for a, b in pairwise(line)) for line in finite if len(line) > 1]
    metrics = compared_metrics(runs[0].scores, kind)
    diverged = tuple(sum(p.diverged is not None for p in columns[value]) for value in values)
    return DialCurve(
        knob=knob, others={name: runs[0].settings.get(name) for name in names}, values=values,
        rho=estimate(spearman([p.knob or 0.0 for p in line], [p.scores.ua for p in line]) for line in finite),
        jump=estimate(jumps), largest_jump=max(jumps, default=None),
        finite=1 - sum(diverged) / len(runs), runs=len(runs), sets=len(lines),
        scores={m: tuple(_column(columns[value], m) for value in values) for m in metrics},
        diverged=diverged,
    )  # fmt: skip


def _column(points: Sequence[Point], metric: str) -> Estimate | None:
    return estimate(float(getattr(p.scores, metric)) for p in points if not p.diverged)


def sort_key(value: object) -> tuple[int, float, str]:
    """Sort key for values of settings: numbers first, then strings."""
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, str(value))  # type: ignore[arg-type]
