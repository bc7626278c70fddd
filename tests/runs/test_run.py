from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, ForgetSplit, Retrain, score, trace, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import LossScores
from gradpivot.experiments.problem import Problem
from gradpivot.loop.loop import Loop
from gradpivot.runs.run import Prepared, Running, run_method
from gradpivot.runtime.parallel import Replicas
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.vae import Autoencoding
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


def test_what_is_left_open_is_the_usual():
    running = Running.of(task=None, replicas=None, seed=3)
    assert isinstance(running.task, Classification)
    assert running == Running(seed=3, task=running.task)
    own = Classification()
    given = Running.of(task=own, replicas=Replicas(1, 2))
    assert given.task is own
    assert given.replicas == Replicas(1, 2)


def test_its_loop_has_every_setting_that_they_share():
    other = Running(
        seed=3,
        factory=trained,
        workers=2,
        progress=lambda done, total: None,
        checkpoint=Path("a"),
        checkpoint_seconds=7.0,
        precision="bfloat16",
        compile=True,
        replicas=Replicas(1, 2),
    )
    loop = other.loop(other.checkpoint)
    shared = {f.name for f in fields(Loop) if f.init}
    assert shared <= {f.name for f in fields(Running)}
    for name in shared:
        assert getattr(loop, name) == getattr(other, name)
        assert getattr(loop, name) != getattr(Running(), name)


def test_what_is_no_setting_or_no_seed_is_refused():
    split = MethodContract().split()
    with pytest.raises(TypeError, match="sed"):
        trace(trained(), split, GA(epochs=1), values=[0.1], sed=1)
    with pytest.raises(GradPivotError, match="the seed is None"):
        run_method(trained(), split, GA(epochs=1), Running(seed=None))


def test_the_task_is_part_of_what_identifies_a_run():
    split, method = ForgetSplit.by_class(blobs(), blobs(seed=1), 0), GA()

    def key(task: object) -> str:
        return Running(task=task).key(split, method, trained())

    class Own(Classification):
        pass

    tasks = [Classification(), Own(), Autoencoding(), Autoencoding(ignorance=0.2), Autoencoding(forgets="model")]
    assert len({key(task) for task in tasks}) == len(tasks)
    assert key(Autoencoding(adapter=lambda batch: batch)) == key(Autoencoding(adapter=lambda batch: batch))


@pytest.mark.parametrize(
    ("ua", "steps", "kind", "told"),
    [
        (0.69, 50, "class", None),
        (0.2, 50, "class", "asked for UA 71.0 %, reached 20.0 %: forgetting more would exceed the retain-loss budget"),
        (0.2, 5, "class", "5 steps are few"),
        (0.2, 50, "random", "A retrained model also classifies most single records correctly"),
    ],
)
def test_a_degree_that_was_missed_is_told(ua, steps, kind, told):
    method = CUP(epochs=1, goal="misclassified")
    result = unlearn(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0), method)
    made = replace(
        result,
        scores=replace(result.scores, ua=ua),
        history={"step": list(range(steps)), "asked": [0.3] * (steps - 1) + [0.71]},
        provenance={**result.provenance, "split": {"kind": kind}, "looked_at_unseen": False},
    )
    assert made.asked_ua == 0.71
    assert made.missed is None if told is None else told in made.missed


@pytest.mark.parametrize(
    ("landed", "reason"), [(0.4, "would exceed the retain-loss budget"), (1.5, "the run ended before it got there")]
)
def test_the_reason_is_where_the_run_landed(landed, reason):
    result = unlearn(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0), CUP(epochs=1))
    history = {"step": list(range(50)), "asked": [0.71], "landed": [None, landed]}
    assert reason in replace(result, scores=replace(result.scores, ua=0.2), history=history).missed


def test_a_note_is_no_miss_and_hides_none():
    result = unlearn(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0), CUP(epochs=1))
    reached, short = ({"step": [0], "asked": [ua]} for ua in (0.2, 0.9))
    scores = replace(result.scores, ua=0.2)
    assert replace(result, note="by the way", scores=scores, history=reached).missed is None
    assert "asked for UA 90.0 %" in replace(result, note="by the way", scores=scores, history=short).missed


def test_a_degree_that_is_no_ua_is_told_too():
    """A generator's samples are not classified here; its history knows what was asked for."""
    result = unlearn(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0), CUP(epochs=1))
    degrees = {"start": [0.0], "most": [1.0], "asked": [0.7], "reached": [0.3]}
    made = replace(
        result,
        scores=LossScores(forget_loss=1.0, retain_loss=1.0, n_forget=40, n_retain=80),
        history={"step": [0], **degrees},
    )
    assert "asked for a degree of forgetting of 70.00 %, reached 30.00 %" in made.missed
    assert replace(made, history={**made.history, "reached": [0.69]}).missed is None


def test_an_original_that_came_back_unchanged_is_told():
    """Whoever ships it must know: a record that cannot be forgotten for what γ allows was not forgotten."""
    model = trained()
    kept = ForgetSplit.random(blobs(), blobs(seed=1), fraction=0.25, seed=0)
    result = unlearn(model, kept, CUP(gamma=0.3, goal="misclassified", objective="unlikelihood", lr=0.02, epochs=15))
    assert result.is_original
    # However little was asked for.
    result.history["asked"][-1] = result.scores.ua + 0.01
    assert "the model is the original, unchanged" in result.missed
    assert "budget 1" in result.missed
    assert (
        unlearn(model, kept, CUP(gamma=0, goal="misclassified", objective="unlikelihood", lr=0.02, epochs=15)).missed
        is None
    )


def test_a_checkpoint_of_another_network_with_the_same_weights_is_another_runs():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    other = trained()
    activation = next(name for name, m in other.layers.named_children() if isinstance(m, nn.ReLU))
    other.layers[int(activation)] = nn.Tanh()
    assert Running().key(split, CUP(), other) != Running().key(split, CUP(), trained())


def test_samples_that_are_not_finite_are_named():
    inputs, labels = (part.clone() for part in blobs().tensors)
    inputs[[50, 61], 2] = math.nan
    data = TensorDataset(inputs, labels)
    result = unlearn(trained(), ForgetSplit.by_class(data, blobs(seed=1), 0), CUP(epochs=3, batch_size=40))
    assert result.diverged
    assert "contain NaN or infinity" in result.diverged["reason"]
    assert re.search(r"samples (50|61)", result.diverged["reason"])


def test_a_prepared_run_is_what_the_verb_runs():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    prepared = Prepared.of(trained(), split, GA(epochs=1, batch_size=20), Running(seed=2))
    assert prepared.split is split
    assert prepared.original() == score(trained(), split)
    result = prepared.run()
    assert result.scores == unlearn(trained(), split, GA(epochs=1, batch_size=20), seed=2).scores
    # Without scores the same weights.
    bare = prepared.outcome().model.state_dict()
    assert all(torch.equal(bare[name], tensor) for name, tensor in result.model.state_dict().items())


def test_a_run_that_searches_is_given_validation_data():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    assert Prepared.of(trained(), split, GA(), searches=True).split.validation_source == "half of test"
    assert Prepared.of(trained(), split, GA()).split.validation is None


def test_a_problem_fills_in_what_suits_it():
    problem = Problem(name="blobs", load=lambda: (blobs(), blobs(seed=1)), model=TinyNet, settings={"batch_size": 7})
    split = ForgetSplit.by_class(*problem.load(), 0)
    prepared = problem.prepared(trained(), split, GA(), seed=4)
    assert (prepared.method.batch_size, prepared.running.seed) == (7, 4)
    assert prepared.running.factory is TinyNet
    assert problem.prepared(trained(), split, GA(batch_size=9)).method.batch_size == 9
    recipe = Retrain(batch_size=64)
    assert problem.prepared(trained(), split, recipe).method == recipe
