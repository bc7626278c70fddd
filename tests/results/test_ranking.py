"""Who leads: paired differences over the sets that series share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from gradpivot.results._standings import standings
from gradpivot.results.ranking import Ranking, Rival, comparable
from gradpivot.results.record import Record

Build = Callable[..., Record]
Values = Mapping[str, Mapping[int, float]]


def ranked(record: Build, values: Values, criterion: str = "hypervolume") -> Ranking:
    """A ranking of series by H (RA, with all else 1) on seeds."""
    runs = [record("run", (v, 1, 1, 1), series=n, seed=s) for n, row in values.items() for s, v in row.items()]
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


def against(record: Build, differences: Mapping[tuple[str, int], float]) -> Rival:
    """B, worse than A by so much in H on each (class, seed)."""
    runs = [record("run", (0.9, 1, 1, 1), series="A", forget=f, seed=s) for f, s in differences]
    runs += [record("run", (0.9 - d, 1, 1, 1), series="B", forget=f, seed=s) for (f, s), d in differences.items()]
    return standings(runs).tables[0].rankings[0].rivals[0]


def test_what_holds_over_sets_but_not_over_seeds_is_not_settled(record: Build) -> None:
    """Over sets 0.15 ± 3.18245·0.057735/2 = 0.0919, above zero; over seeds 0.15 ± 12.7062·0.05 = 0.6353."""
    rival = against(record, {("1", 0): 0.1, ("2", 0): 0.1, ("1", 1): 0.2, ("2", 1): 0.2})
    assert rival.difference.low == pytest.approx(0.15 - 0.09187, abs=1e-5)
    assert rival.over_seeds.low == pytest.approx(0.15 - 0.63531, abs=1e-5)
    assert rival.verdict == rival.to_dict()["verdict"] == "unsettled"


def test_what_holds_over_sets_and_over_seeds_is_separated(record: Build) -> None:
    """The same four differences, now the same 0.15 on both seeds: over seeds the interval has no width."""
    rival = against(record, {("1", 0): 0.1, ("2", 0): 0.2, ("1", 1): 0.1, ("2", 1): 0.2})
    assert rival.difference.low == pytest.approx(0.15 - 0.09187, abs=1e-5)
    assert rival.over_seeds.low == pytest.approx(0.15)
    assert rival.verdict == "separated"


def test_one_seed_settles_nothing_however_many_classes(record: Build) -> None:
    rival = against(record, {(str(c), 0): 0.3 for c in range(10)})
    assert rival.difference.low == pytest.approx(0.3)
    assert (rival.over_seeds.n, rival.verdict) == (1, "unsettled")


def test_what_holds_over_seeds_only_is_tied(record: Build) -> None:
    """Over sets 0.15 ± 3.18245·0.28868/2 = 0.4593 holds zero; over seeds it is 0.15 twice."""
    rival = against(record, {("1", 0): 0.4, ("2", 0): -0.1, ("1", 1): 0.4, ("2", 1): -0.1})
    assert rival.over_seeds.low == pytest.approx(0.15)
    assert rival.difference.low == pytest.approx(0.15 - 0.45935, abs=1e-5)
    assert rival.verdict == "tied"


def test_half_done_sets_are_not_compared(record: Build) -> None:
    """On seed 1 A has one of its two runs, with H = 0.1: only seed 0 (0.6 against 0.5) can be compared."""
    runs = [record("run", (v, 1, 1, 1), series="A", seed=0, label=str(v)) for v in (0.6, 0.2)]
    runs += [record("run", (0.1, 1, 1, 1), series="A", seed=1)]
    runs += [record("run", (0.5, 1, 1, 1), series="B", seed=s) for s in (0, 1)]
    found = standings(runs).tables[0].rankings[0]
    assert (found.leader, found.estimate.n, found.estimate.mean) == ("A", 1, 0.6)
    assert not found.all_sets
    rival = found.rivals[0]
    assert rival.difference.n == 1
    assert rival.difference.mean == pytest.approx(0.1)


def test_divergence_does_not_make_a_method_fast(record: Build) -> None:
    """A needs 2 s; B 3 s, and 0.1 s where it diverged; C always diverged and has no time a run."""
    runs = []
    for seed in (0, 1):
        runs += [record("run", series="A", seed=seed, label=i, seconds=2) for i in "xy"]
        runs += [record("run", series="B", seed=seed, label="x", seconds=3)]
        runs += [record("run", None, series="B", seed=seed, label="y", seconds=0.1)]
        runs += [record("run", None, series="C", seed=seed, label=i, seconds=0.1) for i in "xy"]
    (time,) = [r for r in standings(runs).tables[0].rankings if r.criterion == "seconds"]
    assert (time.leader, [r.name for r in time.rivals]) == ("A", ["B"])
    assert time.rivals[0].difference.mean == 1
