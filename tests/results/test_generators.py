"""Generators compared: tables from records, H and Δ per seed, the dial, the clock and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import Frechet
from gradpivot.results._estimate import spearman
from gradpivot.results.generator_tables import compare_generators
from gradpivot.results.generators import GeneratorSeries, GeneratorTable, are_generators, generation, recognised_rho
from gradpivot.results.record import Record
from made_generators import FEATURES, GAMMAS, cup, made_record, made_sweep, salun


def only(records: Sequence[Record]) -> GeneratorTable:
    (table,) = compare_generators(records).tables
    return table


def series(table: GeneratorTable, name: str) -> GeneratorSeries:
    return next(row for row in table.rows if row.name == name)


def test_a_table_has_the_series_in_order_and_their_runs_along_the_knob() -> None:
    table = only(made_sweep())
    assert table.title == "toy-ddpm, class 3, clean protocol"
    assert [row.name for row in table.rows] == ["Original", "Retrain", "CUP", "SalUn", "SA"]
    assert table.forgotten == (3,)
    first = series(table, "CUP").sets[0]
    assert first.frontier.knob == "gamma"
    assert tuple(point.knob for point in first.frontier.points) == GAMMAS
    assert [record.point for record in first.records] == list(first.frontier.points)
    assert all(record.pictures for record in first.records)


def test_a_grid_over_something_else_is_ordered_by_what_varies() -> None:
    found = series(only(made_sweep()), "SalUn").sets[0]
    assert found.frontier.knob is None
    assert [point.settings["share"] for point in found.frontier.points] == [0.1, 0.5, 0.9]


def test_a_grid_over_two_settings_is_one_line_along_gamma_after_the_other() -> None:
    runs = [cup(g, 1 - g, settings={"lr": lr}) for g in (1.0, 0.0, 0.5) for lr in (0.01, 0.001)]
    row = series(only(runs), "CUP")
    walked = [(point.settings["lr"], point.knob) for point in row.sets[0].frontier.points]
    assert walked == [(0.001, 0.0), (0.001, 0.5), (0.001, 1.0), (0.01, 0.0), (0.01, 0.5), (0.01, 1.0)]
    assert [dial.others for dial in row.dials] == [{"lr": 0.001}, {"lr": 0.01}]


def test_h_of_one_model_is_its_area_and_delta_its_distance() -> None:
    records = [cup(0.5, 0.25, fid=20.0), made_record("retrained", 0.05, fid=10.0)]
    row = series(only(records), "CUP")
    assert row.hypervolume.mean == pytest.approx(0.8 * 0.75)  # M is 100
    assert row.delta.mean == pytest.approx(math.hypot(0.1, 0.2))
    assert row.sets[0].delta_of(0) == pytest.approx(math.hypot(0.1, 0.2))


share = st.integers(0, 200).map(lambda count: count / 200)
distance = st.floats(0, 150)
runs = st.lists(st.tuples(share, distance), min_size=3, max_size=3)


@settings(deadline=None, max_examples=40)
@given(st.lists(runs, min_size=1, max_size=4), st.tuples(share, distance))
def test_h_and_delta_are_averaged_over_seeds_not_taken_of_averages(
    seeds: list[list[tuple[float, float]]], reference: tuple[float, float]
) -> None:
    records = [
        cup(i / 2, still, fid=fid, seed=seed)
        for seed, points in enumerate(seeds)
        for i, (still, fid) in enumerate(points)
    ]
    records += [made_record("retrained", reference[0], fid=reference[1], seed=seed) for seed in range(len(seeds))]
    row = series(only(records), "CUP")
    vectors = [[(1 - min(fid / 100, 1), 1 - still) for still, fid in points] for points in seeds]
    ideal = (1 - min(reference[1] / 100, 1), 1 - reference[0])
    deltas = [min(math.dist(vector, ideal) for vector in points) for points in vectors]
    assert row.hypervolume.mean == pytest.approx(sum(map(area, vectors)) / len(seeds))
    assert row.delta.mean == pytest.approx(sum(deltas) / len(seeds), abs=1e-12)
    assert (row.hypervolume.n, row.delta.n) == (len(seeds), len(seeds))
    for found, delta in zip(row.sets, deltas, strict=True):
        assert found.delta_of(found.chosen) == pytest.approx(delta, abs=1e-12)


def area(points: list[tuple[float, float]]) -> float:
    """The dominated area, stair by stair: what moocore must agree with."""
    total, height = 0.0, 0.0
    for x, y in sorted(points, reverse=True):
        total += x * max(0.0, y - height)
        height = max(height, y)
    return total


def test_without_a_retrained_model_there_is_no_delta_and_the_largest_sum_is_shown() -> None:
    table = only([record for record in made_sweep() if record.role != "retrained"])
    row = series(table, "CUP")
    assert row.delta is None
    assert row.sets[0].delta_of(0) is None
    sums = [sum(point.scores.vector()) for point in row.sets[0].frontier.points]
    assert row.sets[0].chosen == sums.index(max(sums))
    assert any("No retrained model for seed 0" in note for note in table.notes)


def test_a_diverged_reference_is_none() -> None:
    table = only([cup(0.5, 0.2), made_record("retrained", None)])
    assert series(table, "CUP").delta is None
    assert any("diverged and is not used as a reference" in note for note in table.notes)


@settings(deadline=None, max_examples=40)
@given(st.lists(share, min_size=4, max_size=4, unique=True))
def test_rho_is_spearmans_of_gamma_and_the_share_still_recognised(shares: list[float]) -> None:
    gammas = [0.0, 0.2, 0.4, 0.6]
    (dial,) = series(only([cup(g, s) for g, s in zip(gammas, shares, strict=True)]), "CUP").dials
    assert recognised_rho(dial).mean == pytest.approx(spearman(gammas, shares))


def test_rho_of_the_sweep_is_even_and_only_gamma_has_one() -> None:
    table = only(made_sweep(seeds=(0, 1, 2)))
    (dial,) = series(table, "CUP").dials
    rho = recognised_rho(dial)
    assert (rho.mean, rho.n) == (pytest.approx(-1), 3)
    assert rho.low <= rho.mean <= rho.high
    assert series(table, "SalUn").dials == series(table, "SA").dials == ()


def test_a_share_that_never_varies_has_no_rho() -> None:
    (dial,) = series(only([cup(g, 0.5) for g in (0, 0.5, 1)]), "CUP").dials
    assert recognised_rho(dial) is None


def test_time_is_of_finite_runs_and_beside_cups() -> None:
    table = only(made_sweep(seeds=(0, 1)))
    assert series(table, "SA").seconds.mean == pytest.approx(100)
    ratios = {row.name: row.cup_ratio for row in table.series}
    assert ratios == {"CUP": pytest.approx(1), "SalUn": pytest.approx(2), "SA": pytest.approx(10)}
    assert series(table, "SA").diverged == 2
    assert any("Diverged, counted as zeros: SA 2 of 6" in note for note in table.notes)


def test_the_ratio_is_over_seeds_that_both_have() -> None:
    records = [cup(0.5, 0.2, seed=0, seconds=10.0), cup(0.5, 0.2, seed=1, seconds=1000.0)]
    assert series(only([*records, salun(0.5, 0.2)]), "SalUn").cup_ratio == pytest.approx(2)
    assert series(only([salun(0.5, 0.2)]), "SalUn").cup_ratio is None


def test_a_set_that_is_all_diverged_counts_as_zeros() -> None:
    row = series(only([cup(0.5, None), made_record("retrained", 0.0, fid=0.0)]), "CUP")
    assert (row.hypervolume.mean, row.delta.mean) == (0.0, pytest.approx(math.sqrt(2)))
    assert row.seconds is None
    assert row.shown("ua") is None


def test_a_set_under_way_enters_no_mean() -> None:
    records = [*made_sweep(seeds=(0, 1)), cup(0.5, 0.5, seed=2)]
    row = series(only(records), "CUP")
    assert [found.seed for found in row.whole] == [0, 1]
    assert row.hypervolume.n == 2
    assert any("CUP: seed 2 has 1 of 5 runs" in note for note in only(records).notes)


def test_what_was_lost_is_told_beside_the_original_of_the_same_seed() -> None:
    records = [cup(0.5, 0.0, kept=0.9, seed=s) for s in (0, 1)]
    records += [made_record("original", 0.98, kept=1.0 - 0.1 * s, seed=s) for s in (0, 1)]
    table = only(records)
    change = table.kept_change(series(table, "CUP"))
    assert (change.mean, change.n) == (pytest.approx(-0.05), 2)
    without = only(records[:3])
    assert without.kept_change(series(without, "CUP")) is None
    assert any("No original model for seed 1" in note for note in without.notes)


def test_tables_are_apart_by_problem_what_was_forgotten_and_protocol() -> None:
    records = [
        cup(0.5, 0.2, **place)
        for place in (
            {"protocol": "paper"}, {}, {"forget": "10"}, {"forget": "9"}, {"problem": "a"}, {"protocol": "own"},
        )
    ]  # fmt: skip
    titles = [(t.problem, t.forget, t.protocol) for t in compare_generators(records).tables]
    assert titles == [
        ("a", "3", "clean"), ("toy-ddpm", "3", "paper"), ("toy-ddpm", "3", "clean"), ("toy-ddpm", "3", "own"),
        ("toy-ddpm", "9", "clean"), ("toy-ddpm", "10", "clean"),
    ]  # fmt: skip


def test_the_order_of_the_records_does_not_matter() -> None:
    records = made_sweep(seeds=(0, 1))
    assert compare_generators(records).to_dict() == compare_generators(records[::-1]).to_dict()


def test_records_that_came_twice_are_told() -> None:
    records = made_sweep()
    found = compare_generators([*records, records[0]])
    assert (found.records, len(found.notes)) == (len(records), 1)


def test_kinds_are_told_apart_and_a_mix_is_refused(record: Any) -> None:
    assert are_generators(made_sweep())
    assert not are_generators([record()])
    assert not are_generators([])
    with pytest.raises(GradPivotError, match="1 records are from generators and 2 from classifiers"):
        are_generators([record(), cup(0.5, 0.5), record()])
    with pytest.raises(GradPivotError, match="1 records are from generators and 1 from classifiers"):
        compare_generators([record(), cup(0.5, 0.5)])
    with pytest.raises(GradPivotError, match="are from classifiers"):
        compare_generators([record()])
    with pytest.raises(GradPivotError, match="is a classifier"):
        generation(record().point)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(GradPivotError, match="no finished run"):
        compare_generators([])
    with pytest.raises(GradPivotError, match="no finished run"):
        compare_generators([made_record("original", 0.9)])


@pytest.mark.parametrize("change", [{"rescale": 500.0}, {"frechet": (Frechet(1.0, "inception-2015", 600, 1500),)}])
def test_another_scale_or_other_features_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(GradPivotError, match="H and Δ cannot be compared"):
        compare_generators([cup(0.0, 0.9), cup(0.5, 0.2, **change)])


def test_a_distance_that_is_no_number_is_refused() -> None:
    with pytest.raises(GradPivotError, match="not a number"):
        compare_generators([cup(0.5, 0.2, frechet=(Frechet(math.nan, FEATURES, 600, 1500),))])


def test_every_kind_of_distance_is_listed_once_and_the_judging_one_first() -> None:
    inception = Frechet(30.0, "a-inception", 600, 1500)
    toy, more = Frechet(3.0, FEATURES, 600, 1500), Frechet(2.0, FEATURES, 900, 1500)
    table = only([cup(0.0, 0.9, frechet=(toy, inception)), cup(0.5, 0.2, frechet=(more,)), cup(1, 0.1)])
    assert [(d.features, d.n) for d in table.distances] == [
        (FEATURES, 600), (FEATURES, 900), ("a-inception", 600),
    ]  # fmt: skip
    assert any("600 against 1,500, 900 against 1,500" in note for note in table.notes)
    assert not any("against" in note for note in only(made_sweep()).notes)


def test_the_dictionary_is_json_without_pictures_and_histories() -> None:
    records = [replace(r, point=replace(r.point, history={"step": [1.0]})) for r in made_sweep()]
    text = json.dumps(compare_generators(records).to_dict(), allow_nan=False)
    told = json.loads(text)
    assert told["schema"] == "gradpivot.generators/1"
    assert "png" not in text
    assert "history" not in text
    points = told["tables"][0]["rows"][2]["sets"][0]["points"]
    assert [point["knob"] for point in points] == list(GAMMAS)
