"""Who leads: paired differences over the sets that series share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from gradpivot.frontier.ranking import Ranking, comparable
from gradpivot.frontier.record import Record
from gradpivot.frontier.standings import standings

Build = Callable[..., Record]
Values = Mapping[str, Mapping[int, float]]


def ranked(record: Build, values: Values, criterion: str = "hypervolume") -> Ranking:
    """A ranking of series by H (RA, with all else 1) on seeds."""
    runs = [
        record("run", (v, 1, 1, 1), series=n, seed=s) for n, row in values.items() for s, v in row.items()
    ]
    references = [record("retrained", seed=s) for s in {s for row in values.values() for s in row}]
    (table,) = standings([*runs, *references]).tables
    return next(r for r in table.rankings if r.criterion == criterion)


def test_paired_differences_by_hand(record: Build) -> None:
    """A − B is 0.1, 0.1, 0.4 (mean 0.2, std 0.1732): t·std/√3 = 4.30265·0.1 holds zero. A − C is 0.3 everywhere."""
    values = {"A": {0: 0.5, 1: 0.6, 2: 0.9}, "B": {0: 0.4, 1: 0.5, 2: 0.5}, "C": {0: 0.2, 1: 0.3, 2: 0.6}}
    found = ranked(record, values)
    b, c = found.rivals
    assert (found.leader, b.name, c.name) == ("A", "B", "C")
    assert b.difference.mean == pytest.approx(0.2)
    assert b.difference.low == pytest.approx(0.2 - 4.30265 * 0.1, abs=1e-5)
    assert (b.verdict, c.verdict) == ("tied", "separated")
    assert c.difference.std == pytest.approx(0, abs=1e-12)
    # Unpaired, the intervals of A and C overlap by far: pairing is what separates them.
    assert found.estimate.low < c.estimate.high
    assert found.all_sets


def test_less_is_better_for_distance(record: Build) -> None:
    found = ranked(record, {"A": {0: 0.5, 1: 0.6}, "B": {0: 0.9, 1: 1.0}}, "delta")
    assert found.leader == "B"
    assert found.estimate.mean == pytest.approx(0.05)
    assert found.rivals[0].difference.mean == pytest.approx(0.4)  # by how much the leader is better


def test_one_set_decides_nothing(record: Build) -> None:
    found = ranked(record, {"A": {0: 0.5}, "B": {0: 0.9}})
    assert (found.leader, found.rivals[0].verdict) == ("B", "undecided")
    assert found.rivals[0].difference.mean == pytest.approx(0.4)


def test_equal_series_are_tied_and_the_tables_order_decides(record: Build) -> None:
    found = ranked(record, {"B": {0: 0.5, 1: 0.7}, "A": {0: 0.5, 1: 0.7}})
    assert (found.leader, found.rivals[0].verdict) == ("A", "tied")


def test_in_a_sweep_under_way_the_sets_in_common_decide(record: Build) -> None:
    """B has the easy set that A lacks; on the two in common A is better."""
    found = ranked(record, {"A": {0: 0.5, 1: 0.6}, "B": {0: 0.3, 1: 0.4, 2: 1.0}})
    assert found.leader == "A"
    assert found.estimate.n == 2
    assert found.rivals[0].verdict == "separated"
    assert not found.all_sets


def test_a_few_easy_sets_do_not_make_a_leader(record: Build) -> None:
    full = {s: 0.5 + 0.01 * s for s in range(6)}
    found = ranked(record, {"A": full, "B": {4: 0.9, 5: 0.92}})
    assert found.leader == "A"
    assert found.rivals[0].verdict == "ahead"
    assert found.rivals[0].difference.mean == pytest.approx(-0.365)


def test_series_without_a_set_in_common(record: Build) -> None:
    found = ranked(record, {"A": {0: 0.5, 1: 0.6}, "B": {2: 0.9}})
    assert found.leader == "A"
    assert found.rivals[0].difference is None
    assert found.rivals[0].verdict == "undecided"
    assert comparable([], "hypervolume") == {}


def test_differences_are_also_given_over_seeds(record: Build) -> None:
    """Per seed the means of A − B over the classes are 0.15 and 0.35."""
    values = {("1", 0): 0.1, ("2", 0): 0.2, ("1", 1): 0.3, ("2", 1): 0.4}
    runs = [record("run", (0.5, 1, 1, 1), series="A", forget=f, seed=s) for f, s in values]
    runs += [record("run", (0.5 - v, 1, 1, 1), series="B", forget=f, seed=s) for (f, s), v in values.items()]
    rival = standings(runs).tables[0].rankings[0].rivals[0]
    assert (rival.difference.n, rival.over_seeds.n) == (4, 2)
    assert rival.over_seeds.std == pytest.approx(0.2 / math.sqrt(2))
