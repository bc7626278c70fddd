from __future__ import annotations

import copy
import linecache
import random
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import gradpivot
from gradpivot import CUP, GA, WS, Classification, ForgetSplit, NotReachedWarning, Retrain, score, trace, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.runtime import Replicas
from gradpivot.testing.problems import TinyNet, blobs, trained


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def test_the_public_names_are_all_there():
    for name in gradpivot.__all__:
        assert getattr(gradpivot, name) is not None
    assert set(gradpivot.__all__) <= set(dir(gradpivot))
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = gradpivot.nothing
    assert gradpivot.geometry.pivot_weights(1, 1, 0, 0.5) == pytest.approx((1, 1))


def test_unlearn_without_a_method_is_cup():
    result = unlearn(trained(), split())
    assert result.method == CUP()
    assert result.provenance["split"]["split"] == split().hash
    assert result.provenance["environment"]["threads"] == torch.get_num_threads()
    assert len(result.history["step"]) == len(result.history["cosine"]) == 25
    assert result.seconds > 0


def missed_by(verb, *arguments, **options) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        verb(trained(), split(), *arguments, **options)
    return [warning for warning in told if issubclass(warning.category, NotReachedWarning)]


def test_a_degree_that_was_not_reached_is_one_warning_at_the_callers_line():
    (told,) = missed_by(unlearn, CUP(gamma=1, lr=1e-6, epochs=1))
    assert issubclass(NotReachedWarning, UserWarning)
    assert re.fullmatch(
        r".*asked for UA 100.0 %, reached \d+.\d %: 5 steps are few; use more epochs", str(told.message)
    )
    assert told.filename == __file__
    assert "verb(trained(), split()" in linecache.getline(told.filename, told.lineno)


def test_conditions_that_were_not_met_warn_alike():
    (told,) = missed_by(unlearn, CUP(lr=1e-6, epochs=1), until="UA>=99", keep="MIA<=0")
    assert "UA>=99 with MIA<=0 was not met" in str(told.message)
    assert told.filename == __file__


def test_nothing_warns_if_all_was_reached_nor_within_a_trace():
    assert not missed_by(unlearn, CUP(gamma=0, epochs=1))
    assert not missed_by(unlearn, GA(epochs=1))
    assert not missed_by(unlearn, CUP(epochs=1), until="UA<=99")
    assert not missed_by(trace, CUP(lr=1e-6, epochs=1), gammas=(1,))


def test_only_the_first_of_several_processes_warns(monkeypatch):
    monkeypatch.setattr(Replicas, "is_first", False)
    assert not missed_by(unlearn, CUP(gamma=1, lr=1e-6, epochs=1))


def test_the_callers_random_states_stay():
    model, chosen = trained(), split()
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    score(model, chosen)
    trace(model, chosen, CUP(epochs=1), gammas=(0.5,))
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert states[2] == random.getstate()


def test_trace_knows_its_frontier(tmp_path):
    reference = unlearn(trained(), split(), Retrain(lr=0.1, epochs=20, batch_size=20), factory=TinyNet)
    traced = trace(trained(), split(), CUP(lr=0.02, epochs=8), gammas=(0, 0.5, 1), reference=reference)
    assert [p.knob for p in traced.points] == [0, 0.5, 1]
    assert 0 < traced.hypervolume() <= 1
    assert traced.distance() >= 0
    assert traced.nondominated()
    best = traced.pick_result("UA>=0", best="UA")
    assert best.scores.ua == max(p.scores.ua for p in traced.points)
    assert traced.original == score(trained(), split())
    traced.draw(tmp_path / "frontier.png")
    traced.report(tmp_path / "report.html")
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    assert "gamma-slider" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_other_knobs_and_what_has_none():
    traced = trace(trained(), split(), WS(epochs=1), values=(0.1, 1.0))
    assert [p.settings["forget_weight"] for p in traced.points] == [0.1, 1.0]
    assert len(trace(trained(), split(), CUP(epochs=1, batch_size=40)).points) == 11
    with pytest.raises(GradPivotError, match="traced over lr"):
        trace(trained(), split(), GA(), gammas=(0.1,))
    with pytest.raises(GradPivotError, match="no knob"):
        trace(trained(), split(), Retrain())
    with pytest.raises(GradPivotError, match="at least one"):
        trace(trained(), split(), CUP(), gammas=())


class TabularNet(nn.Module):
    """Somebody's own: takes named columns, has dropout and BatchNorm, returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(12, 3)

    def forward(self, numbers: torch.Tensor, flags: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.body(torch.cat([numbers, flags], 1)))}


class Records(Dataset):
    """Somebody's own: dictionaries of columns."""

    def __init__(self, seed: int = 0) -> None:
        self.features, self.labels = blobs(per_class=20, seed=seed).tensors

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        row = self.features[index]
        return {"numbers": row[:3], "flags": row[3:], "outcome": int(self.labels[index])}


@pytest.mark.slow
@pytest.mark.numeric
def test_a_users_own_model_and_data_go_through_unchanged():
    task = Classification(adapter=lambda b: ({"numbers": b["numbers"], "flags": b["flags"]}, b["outcome"]))
    mine = ForgetSplit.by_class(Records(), Records(1), 2, target=task.target_of)
    torch.manual_seed(0)
    model = TabularNet()
    learned = unlearn(model, mine, Retrain(lr=0.1, epochs=15, batch_size=10), task=task, factory=TabularNet).model
    assert score(learned, mine, task=task).ra > 0.9
    before = copy.deepcopy(learned.state_dict())
    results = [unlearn(learned, mine, CUP(gamma=0.7, lr=0.02, epochs=3), task=task, seed=1, workers=w) for w in (0, 2)]
    assert results[0].scores == results[1].scores
    assert results[0].history == results[1].history
    assert all(torch.equal(value, before[name]) for name, value in learned.state_dict().items())


@pytest.mark.numeric
def test_bfloat16_weights():
    model = trained().to(torch.bfloat16)
    features, labels = blobs().tensors
    half = ForgetSplit.by_class((features.bfloat16(), labels), (features.bfloat16(), labels), 0)
    result = unlearn(model, half, CUP(gamma=0.7, lr=0.05, epochs=10))
    assert result.diverged is None
    assert next(result.model.parameters()).dtype == torch.bfloat16
    assert result.scores.ua > 0.5


def test_progress_is_told():
    seen: list[tuple[int, int]] = []
    unlearn(trained(), split(), CUP(epochs=1), progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)


def test_ra_may_be_taken_on_a_part_everywhere():
    model, split = trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    assert score(model, split, retain_scored=10).n_retain == 10
    assert unlearn(model, split, CUP(epochs=1), retain_scored=10).scores.n_retain == 10
    frontier = trace(model, split, CUP(epochs=1), gammas=[0.5], retain_scored=10)
    assert (frontier.original.n_retain, frontier.points[0].scores.n_retain) == (10, 10)


def test_train_is_a_verb_too():
    from gradpivot import train
    from gradpivot.experiments.problem import Problem
    from gradpivot.runs.training import train_model

    problem = Problem(name="blobs", load=lambda: (blobs(), blobs(seed=1)), model=TinyNet)
    recipe = Retrain(epochs=2, lr=0.1, batch_size=20)
    found = train(problem, recipe, seed=1)
    assert found.test_accuracy == train_model(problem, recipe, seed=1).test_accuracy
    assert train("toy", Retrain(epochs=1, batch_size=2000)).provenance["problem"] == "toy"


def test_what_only_looks_like_a_task_is_refused_by_every_verb():
    class Duck:
        retain_loss = forget_loss = predict = target_of = None

    for verb in (unlearn, score, trace):
        with pytest.raises(GradPivotError, match="the task is a Duck; inherit"):
            verb(trained(), split(), task=Duck())


def test_gammas_for_a_method_without_the_dial_say_how_to_put_it_there():
    with pytest.raises(GradPivotError, match=r"use the dial: WS\(gamma=1\)"):
        trace(trained(), split(), WS(), gammas=[0.1])
