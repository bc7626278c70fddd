"""Rankings of series by paired differences over the same (class, seed) sets.

Sets with the same seed share an original model and are not independent, so a difference must also hold over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gradpivot.results._estimate import Estimate, estimate
from gradpivot.results._json import plain, select
from gradpivot.results._sets import Place
from gradpivot.results.series import Series

__all__ = ["CRITERIA", "Ranking", "Rival", "comparable", "rankings"]

CRITERIA: dict[str, bool] = {
    "hypervolume": True, "hypervolume_without_mia": True, "hypervolume_svc": True, "delta": False,
    "seconds": False,
}  # fmt: skip
"""Ranking criteria, and whether higher is better."""

Verdict = Literal["separated", "unsettled", "tied", "ahead", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A series compared with the leader.

    Attributes:
        name: Name of the series.
        estimate: Its value over the sets of the ranking; over its own sets if it has too few of those.
        difference: Difference to the leader over the sets that both have; positive if the leader is better.
        over_seeds: The same over seeds, after averaging over forget sets: fewer but independent values.
        verdict: ``separated`` if the 95 % intervals of the difference over sets and over seeds are both above zero;
            ``unsettled`` if only the one over sets is, or there is only one seed; ``tied`` if the one over sets
            contains zero; ``ahead`` if it is below zero (only possible if sets are missing); ``undecided`` with fewer
            than two common sets.
    """

    name: str
    estimate: Estimate
    difference: Estimate | None
    over_seeds: Estimate | None
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {
            "name": self.name,
            "mean": self.estimate.mean,
            "difference": plain(self.difference),
            "difference_over_seeds": plain(self.over_seeds),
            "verdict": self.verdict,
        }


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The series by one criterion, best first.

    Attributes:
        criterion: One of :data:`CRITERIA`.
        leader: The best series on the complete sets that all series have; see :func:`comparable`.
        estimate: Its value on these sets.
        rivals: The other series, best first.
        all_sets: Whether every series has exactly these sets.
    """

    criterion: str
    leader: str
    estimate: Estimate
    rivals: tuple[Rival, ...]
    all_sets: bool = True

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {
            "criterion": self.criterion,
            "more_is_better": CRITERIA[self.criterion],
            **select(self, "leader", "all_sets", "estimate", "rivals"),
        }


def rankings(series: Sequence[Series]) -> list[Ranking]:
    """Rank the series by each criterion that is known.

    The 95 % intervals are per pair, not corrected for multiple comparisons.
    """
    found = (_ranking(series, criterion, up) for criterion, up in CRITERIA.items())
    return [ranking for ranking in found if ranking]


def comparable(series: Sequence[Series], measure: str) -> dict[str, Estimate]:
    """Means of the series over the complete sets that all of them have.

    In an unfinished sweep series have different sets, and sets differ in difficulty. Series with less than half as many
    sets as the largest are left out, so that they do not reduce the common sets to a few.
    """
    known = {row.name: row.by_place(measure) for row in series}
    most = max(map(len, known.values()), default=0)
    field = {name: values for name, values in known.items() if values and 2 * len(values) >= most}
    if not (shared := _shared(field)):
        field = {name: values for name, values in field.items() if len(values) == most}
        shared = _shared(field)
    over = {name: estimate(values[place] for place in shared) for name, values in field.items()}
    return {name: value for name, value in over.items() if value}


def _shared(field: Mapping[str, Mapping[Place, float]]) -> set[Place]:
    return set.intersection(*map(set, field.values())) if field else set()


def _ranking(series: Sequence[Series], criterion: str, up: bool) -> Ranking | None:
    sign = 1.0 if up else -1.0
    field = comparable(series, criterion)
    if not field:
        return None
    known = [(row, field.get(row.name, m.over_sets)) for row in series if (m := row.measures[criterion])]
    # Stable sort: ties keep the order of the table.
    known.sort(key=lambda pair: -sign * pair[1].mean)
    leader, best = next(pair for pair in known if pair[0].name in field)
    rivals = (_rival(leader, row, own, criterion, sign) for row, own in known if row is not leader)
    return Ranking(
        criterion=criterion, leader=leader.name, estimate=best, rivals=tuple(rivals),
        all_sets=all(len(row.by_place(criterion)) == best.n for row in series),
    )  # fmt: skip


def _rival(leader: Series, other: Series, own: Estimate, criterion: str, sign: float) -> Rival:
    first, second = leader.by_place(criterion), other.by_place(criterion)
    by_seed: dict[int, list[float]] = {}
    for place in first:
        if place in second:
            by_seed.setdefault(place[1], []).append(sign * (first[place] - second[place]))
    difference = estimate(value for values in by_seed.values() for value in values)
    over_seeds = estimate(math.fsum(values) / len(values) for values in by_seed.values())
    return Rival(
        name=other.name, estimate=own, difference=difference, over_seeds=over_seeds,
        verdict=_verdict(difference, over_seeds),
    )  # fmt: skip


def _verdict(difference: Estimate | None, over_seeds: Estimate | None) -> Verdict:
    if difference is None or difference.low is None or difference.high is None:
        return "undecided"
    if difference.low > 0:
        settled = over_seeds is not None and over_seeds.low is not None and over_seeds.low > 0
        return "separated" if settled else "unsettled"
    return "ahead" if difference.high < 0 else "tied"
