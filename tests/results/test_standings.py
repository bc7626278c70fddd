"""Standings of small made sweeps whose numbers are worked out by hand."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.results._standings import STANDINGS_SCHEMA, Standings, Table, standings
from gradpivot.results.frontier import Frontier
from gradpivot.results.record import Record
from gradpivot.results.series import Series, measures

Build = Callable[..., Record]
TWO = [(0.8, 0.5, 1, 1, 0.5), (0.5, 0.8, 1, 1, 0.5)]  # H = 0.4 + 0.4 − 0.25 = 0.55, with the SVC's half of it


def only(found: Standings) -> Table:
    (table,) = found.tables
    return table


def mean(row: Series, measure: str) -> float | None:
    m = row.measures[measure]
    return None if m is None else m.over_sets.mean


def test_one_set_by_hand(record: Build) -> None:
    runs = [record("run", s, label=str(i), key=f"k{i}", seconds=1 + 2 * i) for i, s in enumerate(TWO)]
    row = only(standings([*runs, record("retrained", seconds=40)])).series[0]
    assert mean(row, "hypervolume") == pytest.approx(0.55)
    assert mean(row, "hypervolume_without_mia") == pytest.approx(0.55)
    assert mean(row, "hypervolume_svc") == pytest.approx(0.275)
    assert mean(row, "delta") == pytest.approx(math.sqrt(0.29))
    assert mean(row, "seconds") == 2
    assert mean(row, "space_seconds") == 4
    assert row.retrain_ratio == pytest.approx(2 / 40)
    # Both are equally near: the first by key is shown.
    assert row.sets[0].shown is runs[0].point
    assert (mean(row, "ra"), mean(row, "ua"), mean(row, "mia_svc")) == (0.8, 0.5, 0.5)
    assert row.measures["hypervolume"].over_sets.low is None


def test_the_bracket_is_the_spread_over_classes(record: Build) -> None:
    """H is 0.2, 0.4 for class 1 (mean 0.3) and 0.6, 1.0 for class 2 (mean 0.8): std of (0.3, 0.8)."""
    values = {("1", 0): 0.2, ("1", 1): 0.4, ("2", 0): 0.6, ("2", 1): 1.0}
    runs = [record("run", (v, 1, 1, 1), forget=f, seed=s) for (f, s), v in values.items()]
    row = only(standings(runs)).series[0]
    m = row.measures["hypervolume"]
    assert m.over_sets.mean == pytest.approx(0.55)
    assert m.over_sets.std == pytest.approx(math.sqrt((0.35**2 + 0.15**2 + 0.05**2 + 0.45**2) / 3))
    assert m.std_forget == m.bracket == pytest.approx(0.5 / math.sqrt(2))
    assert (m.over_sets.n, m.over_seeds.n) == (4, 2)
    assert m.over_seeds.mean == pytest.approx(0.55)
    assert m.over_seeds.std == pytest.approx(0.3 / math.sqrt(2))
    assert row.classes["1"]["hypervolume"].mean == pytest.approx(0.3)
    assert row.classes["2"]["hypervolume"].std == pytest.approx(0.4 / math.sqrt(2))


def test_for_one_class_the_bracket_is_the_spread_over_seeds(record: Build) -> None:
    runs = [record("run", (v, 1, 1, 1), seed=s) for s, v in enumerate((0.2, 0.4))]
    m = only(standings(runs)).series[0].measures["hypervolume"]
    assert m.std_forget is None
    assert m.bracket == m.over_sets.std == pytest.approx(0.2 / math.sqrt(2))


def test_diverged_runs_count_as_zeros_and_are_told(record: Build) -> None:
    runs = [record("run", (0.5, 1, 1, 1)), record("run", None, label="lost", seed=0), record("run", None, seed=1)]
    table = only(standings([*runs, *(record("retrained", seed=s) for s in (0, 1))]))
    row = table.series[0]
    assert (row.runs, row.diverged) == (3, 2)
    assert [s.values["hypervolume"] for s in row.sets] == [0.5, 0.0]
    assert [s.values["delta"] for s in row.sets] == [0.5, 2.0]  # ‖(1, 1, 1, 1)‖ = 2
    assert "Diverged, counted as zeros: CUP 2 of 3." in table.notes


def test_a_finite_run_is_shown_before_a_diverged_one_at_the_same_distance(record: Build) -> None:
    runs = [record("run", None, key="a"), record("run", (0, 0, 0, 0), key="b")]
    row = only(standings([*runs, record("retrained")])).series[0]
    assert row.sets[0].shown is runs[1].point


def test_random_subsets_are_judged_by_the_gap(record: Build) -> None:
    place = {"kind": "random", "forget": "10 %"}
    run = record("run", (1, 0.3, 0.9, 0.5, 0.2), **place)
    reference = record("retrained", (1, 0.1, 0.9, 0.3, 0.3), **place)
    table = only(standings([run, reference]))
    assert table.task == "random 10 %"
    row = table.series[0]
    # MIA takes no part; H SVC is the paper's procedure.
    assert mean(row, "hypervolume") == mean(row, "hypervolume_without_mia") == pytest.approx(0.8)
    assert mean(row, "hypervolume_svc") == pytest.approx(0.8 * 0.9)
    assert mean(row, "delta") == pytest.approx(0.2)
    # These records are older than the scores for records.
    assert mean(row, "auc") is mean(row, "uncertainty") is None
    assert mean(row, "mia") == 0.5
    assert mean(row, "delta_svc") == pytest.approx(math.sqrt(0.05))
    alone = only(standings([run]))
    assert {mean(alone.series[0], m) for m in measures() if not m.endswith("seconds")} == {None}
    assert any(n.startswith("No retrained model for random 10 %, seed 0: Δ and H") for n in alone.notes)


def test_without_a_reference_there_is_no_delta_and_a_note(record: Build) -> None:
    runs = [record("run", s, label=str(s), key=str(i)) for i, s in enumerate([(0.2, 1, 1, 1), (0.9, 0.9, 1, 1)])]
    table = only(standings(runs))
    row = table.series[0]
    assert mean(row, "delta") is None
    assert mean(row, "hypervolume") == pytest.approx(0.2 + 0.81 - 0.18)
    assert row.sets[0].shown is runs[1].point  # the larger sum
    assert "No retrained model for class 3, seed 0: Δ is unknown there; run Retrain." in table.notes
    lost = only(standings([*runs, record("retrained", None)]))
    assert "The retrained model of class 3, seed 0 diverged and is not used as a reference; rerun it." in lost.notes
    assert mean(lost.series[0], "delta") is None


def test_sets_that_are_short_or_missing_are_named(record: Build) -> None:
    runs = [record("run", seed=s, label=str(i)) for s in (0, 1) for i in range(3 - s)]
    runs.append(record("run", series="WS"))
    table = only(standings(runs))
    assert "CUP: class 3, seed 1 has 2 of 3 runs." in table.notes
    assert any(n.startswith("WS was run on 1 of 2 sets (not on class 3, seed 1)") for n in table.notes)
    cup = next(row for row in table.series if row.name == "CUP")
    assert cup.incomplete == ((("3", 1), 2),)
    assert cup.to_dict()["incomplete"] == [{"forget": "3", "seed": 1, "runs": 2, "of": 3}]


def test_half_done_sets_enter_no_average(record: Build) -> None:
    """H is 0.55 with both runs and 0.4 with one of them: the mean is 0.55, not 0.475."""
    runs = [record("run", s, label=str(i), seed=0, seconds=4) for i, s in enumerate(TWO)]
    runs.append(record("run", TWO[0], label="0", seed=1, forget="4", seconds=8))
    table = only(standings([*runs, record("retrained", seconds=40), record("retrained", seed=1, forget="4")]))
    row = table.series[0]
    assert [s.values["hypervolume"] for s in row.sets] == pytest.approx([0.55, 0.4])
    assert [s.place for s in row.whole] == [("3", 0)]
    assert mean(row, "hypervolume") == pytest.approx(0.55)
    assert list(row.by_place("hypervolume")) == [("3", 0)]
    assert list(row.classes) == ["3"]
    assert (mean(row, "seconds"), row.retrain_ratio, row.space_ratio) == (4, 0.1, 0.2)
    assert row.to_dict()["sets"]["whole"] == [True, False]
    assert "CUP: class 4, seed 1 has 1 of 2 runs." in table.notes
    assert "Sets with fewer runs than their series' largest are left out of means and rankings." in table.notes


def test_a_diverged_run_is_a_run(record: Build) -> None:
    """The second run of seed 1 diverged: the set is whole, and the mean is (0.55 + 0.4) / 2."""
    runs = [record("run", s, label=str(i), seed=0) for i, s in enumerate(TWO)]
    runs += [record("run", s, label=str(i), seed=1) for i, s in enumerate((TWO[0], None))]
    row = only(standings(runs)).series[0]
    assert row.incomplete == ()
    assert mean(row, "hypervolume") == pytest.approx(0.475)


def test_time_a_run_is_over_finite_runs(record: Build) -> None:
    """(4 + 2) / 2 = 3 s a finite run, 6.5 s in all; of 30 s of retraining 0.1 and 6.5/30."""
    runs = [record("run", label=str(t), seconds=t) for t in (4, 2)] + [record("run", None, seconds=0.5)]
    row = only(standings([*runs, record("retrained", seconds=30)])).series[0]
    assert (mean(row, "seconds"), mean(row, "space_seconds")) == (3, 6.5)
    assert row.retrain_ratio == pytest.approx(0.1)
    assert row.space_ratio == pytest.approx(6.5 / 30)
    lost = only(standings([record("run", None, seconds=0.5), record("retrained", seconds=30)])).series[0]
    assert (mean(lost, "seconds"), mean(lost, "space_seconds"), lost.retrain_ratio) == (None, 0.5, None)
    assert lost.space_ratio == pytest.approx(0.5 / 30)


def test_sets_of_different_size_are_told(record: Build) -> None:
    def told(sizes: dict[str, int]) -> list[str]:
        runs = [record("run", series=name, label=str(i)) for name, n in sizes.items() for i in range(n)]
        return [note for note in only(standings(runs)).notes if note.startswith("Sets differ")]

    assert told({"A": 2, "B": 2}) == []
    assert told({"A": 2, "B": 3, "C": 2}) == [
        "Sets differ in size (runs, 2: A, C; 3: B): H and Δ can only gain from more settings."
    ]
    assert told({"A": 1, "B": 3, "C": 3, "D": 3, "E": 3, "F": 5}) == [
        "Sets differ in size (runs, 1: A; 5: F; 3: the others): H and Δ can only gain from more settings."
    ]


def test_notes_of_the_caller_are_kept(record: Build) -> None:
    twice = record("run", key="k")
    found = standings([twice, twice], notes=["3 runs failed."])
    assert found.notes[0].startswith("Ignored 1 duplicate records")
    assert found.notes[1:] == ("3 runs failed.",)
    assert found.to_dict()["notes"] == list(found.notes)
    assert standings([twice]).notes == ()


def test_long_lists_of_gaps_are_cut_short(record: Build) -> None:
    runs = [record("run", seed=s) for s in range(20)]
    assert any(n.endswith("and 8 more: Δ is unknown there; run Retrain.") for n in only(standings(runs)).notes)


def test_the_first_of_a_key_counts(record: Build) -> None:
    first, second = record("run", (0.5, 1, 1, 1), key="k"), record("run", (0.9, 1, 1, 1), key="k")
    found = standings([first, second, first])
    assert mean(only(found).series[0], "hypervolume") == 0.5
    assert found.records == 1
    assert found.notes == ("Ignored 2 duplicate records (1 with different scores).",)


def test_of_several_references_the_first_by_key_counts(record: Build) -> None:
    references = [record("retrained", (1, 1, 1, x), key=k) for x, k in ((0.5, "b"), (1, "a"))]
    table = only(standings([record("run"), *references]))
    assert mean(table.series[0], "delta") == 0
    assert any("several retrained models" in note for note in table.notes)


def test_the_undetermined_share_leaves_diverged_runs_out(record: Build) -> None:
    runs = [record("run", determined=False), record("run", label="b"), record("run", None)]
    assert only(standings(runs)).series[0].undetermined == 0.5
    assert only(standings([record("run", None)])).series[0].undetermined is None


def undetermined(record: Record) -> Record:
    scores = replace(record.point.scores, mia_accuracy=0.51, mia_determined=False)
    return replace(record, point=replace(record.point, scores=scores))


def test_an_undetermined_mia_is_left_out_for_the_whole_table(record: Build) -> None:
    """Only one of two retrained models is at chance, and only some runs are; H and Δ have three axes everywhere."""
    noisy = {0: 0.0, 1: 0.5}
    runs = [record("run", (0.8, 0.5, 1, noisy[s]), series=n, seed=s) for s in noisy for n in ("CUP", "WS")]
    runs[0] = undetermined(runs[0])
    references = [record("retrained", seed=0), undetermined(record("retrained", seed=1))]
    table = only(standings([*runs, *references]))
    for row in table.series:
        assert [s.values["hypervolume"] for s in row.sets] == pytest.approx([0.4, 0.4])
        assert [s.values["delta"] for s in row.sets] == pytest.approx([math.hypot(0.2, 0.5)] * 2)
        assert [s.values["mia"] for s in row.sets] == [0.0, 0.5]
    assert {ranking.criterion: ranking.estimate.mean for ranking in table.rankings}["hypervolume"] == pytest.approx(0.4)
    assert table.undetermined == ("mia",)
    assert table.to_dict()["undetermined"] == ["mia"]
    note = "MIA is undetermined for 1 of 2 retrained models (members and non-members look alike); H and Δ leave it out."
    assert note in table.notes


def test_a_mia_that_is_undetermined_everywhere_is_noted_in_one_line(record: Build) -> None:
    table = only(standings([record("run", (1, 1, 1, 0)), undetermined(record("retrained"))]))
    assert (mean(table.series[0], "hypervolume"), mean(table.series[0], "delta")) == (1, 0)
    assert any("MIA is undetermined here (members and non-members look alike)" in note for note in table.notes)


def test_an_undetermined_run_does_not_decide(record: Build) -> None:
    """What counts is the control: a method cannot drop the axis on which it is bad."""
    table = only(standings([undetermined(record("run", (1, 1, 1, 0.5))), record("retrained")]))
    assert mean(table.series[0], "hypervolume") == 0.5
    assert table.undetermined == ()


def test_tables_and_series_stand_in_order(record: Build) -> None:
    names = ("zeta", "CUP", "ℓ1-sparse", "Alpha", "GA", "WS")
    runs = [record("run", series=n) for n in names]
    runs += [record("run", protocol=p) for p in ("other", "paper")]
    runs += [record("run", kind="random", forget="10 %"), record("run", forget="3,5"), record("run", problem="a")]
    found = standings(runs)
    assert [(t.problem, t.task, t.protocol) for t in found.tables] == [
        ("a", "class-wise", "clean"), ("digits", "class-wise", "paper"), ("digits", "class-wise", "clean"),
        ("digits", "class-wise", "other"), ("digits", "class-wise, 2 classes", "clean"),
        ("digits", "random 10 %", "clean"),
    ]  # fmt: skip
    clean = found.tables[2]
    assert [row.name for row in clean.series] == ["GA", "WS", "ℓ1-sparse", "CUP", "Alpha", "zeta"]
    assert clean.title == "digits, class-wise, clean protocol"


def test_classes_sort_as_numbers(record: Build) -> None:
    assert only(standings([record("run", forget=f) for f in ("10", "2", "cat")])).forgets == ["2", "10", "cat"]


def test_models_belong_to_all_protocols_but_not_to_other_places(record: Build) -> None:
    runs = [record("run", protocol=p) for p in ("paper", "clean")]
    found = standings([*runs, record("retrained"), record("retrained", seed=9), record("original", (1, 0, 1, 0))])
    for table in found.tables:
        assert [s.place for s in table.retrained.sets] == [("3", 0)]
        assert mean(table.original, "delta") == pytest.approx(math.sqrt(2))
        assert mean(table.retrained, "hypervolume") == 1


def test_nothing_to_compare_and_broken_scores_say_what_to_do(record: Build) -> None:
    with pytest.raises(GradPivotError, match="no finished run"):
        standings([record("retrained")])
    with pytest.raises(GradPivotError, match="not a number; rerun it"):
        standings([record("run", (float("nan"), 1, 1, 1))])
    with pytest.raises(GradPivotError, match="'mnist'; it has cifar10, svhn"):
        standings([record("run")], beside="mnist")


def test_the_paper_stands_beside_its_problems_and_as_context(record: Build) -> None:
    ours = only(standings([record("run", problem="cifar10"), record("retrained", problem="cifar10")]))
    assert (ours.dataset, ours.context) == ("cifar10", False)
    assert ours.paper(ours.series[0], "hypervolume_svc").mean == pytest.approx(0.9183)
    assert ours.paper(ours.retrained, "ta").mean == pytest.approx(0.9488)
    assert ours.paper(ours.series[0], "hypervolume_svc", "3") is not None
    digits = only(standings([record("run")]))
    assert digits.dataset is None
    assert not any("The paper has no" in note for note in digits.notes)
    context = only(standings([record("run")], beside="cifar10"))
    assert (context.dataset, context.context) == ("cifar10", True)
    assert any("context" in note for note in context.notes)


scores = st.tuples(*[st.integers(0, 20).map(lambda i: i / 20)] * 5)
runs_of_sets = st.dictionaries(
    st.tuples(st.sampled_from("012"), st.integers(0, 2)), st.lists(st.none() | scores, min_size=1, max_size=4),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(deadline=None)
@given(runs_of_sets, st.sampled_from(["class", "random"]), st.randoms())
def test_the_order_of_records_does_not_matter_and_sets_are_frontiers(
    record: Build, sets: dict[Any, Any], kind: str, shuffler: random.Random
) -> None:
    """Standings do not depend on the records' order, and agree with the frontier of each set."""
    records = []
    for (forget, seed), lines in sets.items():
        place = {"kind": kind, "forget": forget if kind == "class" else "10 %", "seed": seed}
        records.append(record("retrained", (1, 0.9, 0.8, 0.7, 0.6), **place))
        records += [record("run", line, label=f"{forget} {i}", **place) for i, line in enumerate(lines)]
    found = standings(records)
    shuffler.shuffle(records)
    assert standings(records).to_dict() == found.to_dict()
    for s in only(found).series[0].sets:
        frontier: Frontier = s.frontier
        assert s.values["hypervolume"] == pytest.approx(frontier.hypervolume())
        assert s.values["hypervolume_without_mia"] == pytest.approx(frontier.hypervolume(("ra", "ua", "ta")))
        assert s.values["hypervolume_svc"] == pytest.approx(frontier.hypervolume(("ra", "ua", "ta", "mia_svc")))
        assert s.values["delta"] == pytest.approx(frontier.distance())


def test_the_dictionary_is_json_with_its_schema(sweep: list[Record]) -> None:
    told = json.loads(json.dumps(standings(sweep).to_dict(), allow_nan=False))
    assert told["schema"] == STANDINGS_SCHEMA == "gradpivot.standings/1"
    table = told["tables"][0]
    assert (table["forgets"], table["seeds"]) == (["3", "10"], [0, 1, 2])
    cup = next(row for row in table["rows"] if row["name"] == "CUP")
    assert len(cup["sets"]["hypervolume"]) == 6
    assert 0 <= cup["measures"]["hypervolume"]["mean"] <= 1
    assert {r["criterion"] for r in table["rankings"]} >= {"hypervolume", "delta", "seconds"}


def test_without_a_retrained_model_of_ours_the_papers_stands_in_and_is_told(record: Build) -> None:
    """CIFAR-10's class 0 in the paper: 100, 100, 94.88, 100."""
    runs = [record("run", (1, 1, 0.9288, 1), problem="cifar10", forget="0")]
    table = only(standings(runs))
    assert mean(table.series[0], "delta") == pytest.approx(0.02)
    assert mean(table.series[0], "delta_svc") == pytest.approx(0.02)
    assert table.retrained is None
    assert table.series[0].retrain_ratio is None
    assert any("Δ is to the paper's (RA 100.00, UA 100.00, TA 94.88, MIA 100.00)" in n for n in table.notes)
    own = record("retrained", (1, 1, 0.9288, 1), problem="cifar10", forget="0")
    table = only(standings([*runs, own]))
    assert mean(table.series[0], "delta") == 0
    assert not any("the paper's (RA" in note for note in table.notes)


@pytest.mark.parametrize("changes", [{"problem": "digits"}, {"problem": "cifar10", "kind": "random", "forget": "10 %"}])
def test_elsewhere_nothing_is_borrowed(record: Build, changes: dict[str, str]) -> None:
    table = only(standings([record("run", (1, 1, 1, 1), **changes)]))
    assert mean(table.series[0], "delta") is None
    assert any("No retrained model" in note for note in table.notes)
