"""Who leads, and from whom the leader is separated: paired differences over the same (class, seed) sets.

Sets of one seed share its original model and are not independent. So a difference is settled only if it also
holds over seeds.
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
"""What series are ranked by, and whether more is better."""

Verdict = Literal["separated", "unsettled", "tied", "ahead", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A series against the leader.

    Attributes:
        name: The series.
        estimate: Its value over the sets that the ranking is made on; its own where it has too few of them.
        difference: By how much the leader is better, over the sets both have; positive = the leader is better.
        over_seeds: The same, averaged over what was forgotten first: fewer values, but independent ones.
        verdict: ``separated`` if the 95 % intervals of the difference over sets and over seeds both lie above
            zero; ``unsettled`` if only that over sets does, or there is one seed: behind on these classes;
            ``tied`` if that over sets holds zero; ``ahead`` if it lies below (only where sets are missing);
            ``undecided`` with fewer than two sets in common.
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
        leader: The best on the whole sets that all series have; see :func:`comparable`.
        estimate: Its value there.
        rivals: All others, best first.
        all_sets: Whether every series has all those sets and no other.
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
    """The series by each criterion that can be judged.

    The 95 % intervals are one a pair, not corrected for the number of pairs.
    """
    found = (_ranking(series, criterion, up) for criterion, up in CRITERIA.items())
    return [ranking for ranking in found if ranking]


def comparable(series: Sequence[Series], measure: str) -> dict[str, Estimate]:
    """The series whose means can be set against each other, each over the whole sets that all of them have.

    A sweep that is under way has more sets of one series than of another, and sets differ in difficulty. Series
    with less than half of the most sets are left out, so that a few runs of one do not decide for all.
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
    # Stable: at equal means the table's order decides.
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
