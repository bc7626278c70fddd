from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from gradpivot import CUP, WS, ForgetSplit, Retrain
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problem import Problem
from gradpivot.experiments.toy.figure import run_toy
from gradpivot.report.run.summary import mean_interval, summary, summary_markdown
from gradpivot.sweep.store.records import seal
from gradpivot.sweep.study import Runs, run_study
from gradpivot.testing.problems import TinyNet, blobs, trained


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(
        name="blobs",
        load=lambda: (blobs(), blobs(seed=1)),
        model=TinyNet,
        training=Retrain(lr=0.1, epochs=10, batch_size=20),
    )


def series() -> dict:
    dial = [CUP(gamma=g, lr=0.02) for g in (0.0, 0.5, 1.0)]
    return {"CUP dial": dial, "CUP": [CUP(gamma=0.5, lr=lr) for lr in (1e-3, 1e-2)], "WS": [WS(lr=0.02)]}


def study(problem, folder, seed=0):
    split = ForgetSplit.by_class(*problem.load(), 0)
    seen = []
    comparison = run_study(
        problem, split, series(), seed=seed, folder=folder, title="t",
        report=lambda done, total, what: seen.append((done, total)),
    )  # fmt: skip
    return comparison, seen


def test_a_study_is_recorded_and_not_run_twice(problem, tmp_path):
    first, seen = study(problem, tmp_path)
    assert seen[0] == (0, 8)
    assert seen[-1] == (8, 8)
    assert len(list((tmp_path / "runs").rglob("*.json"))) == 7
    times = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")}
    again, _ = study(problem, tmp_path)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.*")} == times
    assert [f.to_dict() for f in again.frontiers] == [f.to_dict() for f in first.frontiers]


@pytest.mark.parametrize("damage", ["{", "a sealed score of text"])
def test_a_damaged_record_is_done_again_with_the_same_numbers(problem, tmp_path, damage):
    first, _ = study(problem, tmp_path)
    victim = sorted((tmp_path / "runs").rglob("*.json"))[0]
    if damage != "{":
        point = json.loads(victim.read_text())["record"]
        damage = json.dumps(seal(victim.stem, point | {"scores": point["scores"] | {"ua": "high"}}))
    victim.write_text(damage)
    again, _ = study(problem, tmp_path)
    assert again.provenance["damaged_records_redone"] == [victim.name]
    assert [p.scores for f in again.frontiers for p in f.points] == [
        p.scores for f in first.frontiers for p in f.points
    ]


def test_an_original_made_with_other_settings_is_refused(problem, tmp_path):
    from dataclasses import replace

    study(problem, tmp_path)
    other = replace(problem, training=Retrain(lr=0.2, epochs=10, batch_size=20))
    with pytest.raises(GradPivotError, match="delete it or name another folder"):
        study(other, tmp_path)


@pytest.mark.slow
def test_summary_over_seeds(problem, tmp_path):
    comparisons = [study(problem, tmp_path / str(seed), seed)[0] for seed in (0, 1)]
    told = summary(comparisons)
    assert set(told["methods"]) == {"CUP", "WS"}
    assert set(told["dials"]) == {"CUP dial"}
    assert told["methods"]["CUP"]["hypervolume"]["mean"] == pytest.approx(
        sum(c.frontiers[1].hypervolume() for c in comparisons) / 2
    )
    page = summary_markdown(told)
    assert "| γ | 0 | 0.5 | 1 |" in page
    assert "2 seeds (0, 1)" in page
    with pytest.raises(GradPivotError, match="at least one seed"):
        summary([])


def test_student_interval():
    told = mean_interval([1.0, 2.0, 3.0])
    assert told["mean"] == 2
    assert told["half"] == pytest.approx(4.302653 / 3**0.5, rel=1e-5)
    assert mean_interval([1.0])["half"] == float("inf")


@pytest.mark.numeric
def test_toy_figure_one():
    """The paper's Figure 1 on the default seed: CUP forgets class 2 and keeps the rest, GA does not, WS in between."""
    outcome = run_toy(seed=0, seeds=1)
    accuracy = outcome.summary["accuracy"]
    original = accuracy["Original"]

    def worst_drop(name: str) -> float:
        return max(original[c] - accuracy[name][c] for c in (0, 1, 3, 4))

    assert accuracy["CUP, γ = 0.7"][2] <= 0.05
    assert worst_drop("CUP, γ = 0.7") <= 0.05
    assert worst_drop("CUP, γ = 0.7") < worst_drop("Weighted scalarisation") < worst_drop("Gradient ascent")
    assert "Over 1 seeds" in outcome.table()


@pytest.mark.slow
def test_ra_is_on_the_problems_part_and_other_parts_are_other_records(problem, tmp_path):
    on_part, _ = study(replace(problem, retain_scored=10), tmp_path)
    assert {p.scores.n_retain for f in on_part.frontiers for p in f.points} == {10}
    assert on_part.original.scores.n_retain == on_part.retrained.scores.n_retain == 10
    on_all, _ = study(problem, tmp_path)
    assert {p.scores.n_retain for f in on_all.frontiers for p in f.points} == {80}


def test_an_original_that_the_problem_brings_is_neither_trained_nor_kept(problem, tmp_path):
    given = replace(problem, original=TinyNet)
    study(given, tmp_path)
    assert not list(tmp_path.glob("original-*"))


def test_models_are_kept_where_somebody_asks_for_them(problem, tmp_path, monkeypatch):
    split = ForgetSplit.by_class(*problem.load(), 0)
    method, model = WS(lr=0.02), trained()
    runs, ready = Runs(tmp_path), problem.prepared(model, split, method, seed=3)
    point = runs.point(ready)
    assert not (tmp_path / "models").exists()
    run, ran = type(ready).run, []
    monkeypatch.setattr(type(ready), "run", lambda self: ran.append(self.key) or run(self))
    # A record without weights is run again, and only once.
    first, again = runs.result(ready), Runs(tmp_path).result(ready)
    assert ran == [ready.key]
    assert first.scores == again.scores == point.scores
    assert (first.history, first.missed, first.provenance) == (again.history, again.missed, again.provenance)
    pairs = zip(first.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
