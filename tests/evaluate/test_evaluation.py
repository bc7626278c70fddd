from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradpivot import Classification, ForgetSplit, score
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.evaluation import evaluate, predictions, scored_part
from gradpivot.evaluate.membership import membership_attack
from gradpivot.testing import blobs, trained


def split(kind: str = "class") -> ForgetSplit:
    train, test = blobs(), blobs(seed=1)
    return ForgetSplit.by_class(train, test, 0) if kind == "class" else ForgetSplit.random(train, test, 0.2)


@pytest.mark.parametrize("kind", ["class", "random"])
def test_accuracies_are_the_plain_ones(kind):
    chosen, model = split(kind), trained()
    told = evaluate(model, chosen, Classification())
    with torch.no_grad():
        train = (model(chosen.train.tensors[0]).argmax(1) == chosen.train.tensors[1]).numpy()
        test = (model(chosen.test.tensors[0]).argmax(1) == chosen.test.tensors[1]).numpy()
    kept = chosen.test_labels != 0 if kind == "class" else np.ones(len(test), bool)
    assert told.ra == train[chosen.retain_indices].mean()
    assert told.ua == pytest.approx(1 - train[chosen.forget_indices].mean())
    assert told.ta == test[kept].mean()
    assert (told.n_forget, told.n_retain, told.n_test) == (
        len(chosen.forget_indices), len(chosen.retain_indices), kept.sum(),
    )  # fmt: skip


def test_one_forward_pass_serves_everything():
    model, seen = trained(), 0

    def count(module, inputs):
        nonlocal seen
        seen += len(inputs[0])

    model.register_forward_pre_hook(count)
    chosen = split()
    score(model, chosen)
    assert seen == len(chosen.train) + len(chosen.test_indices)


def test_members_are_as_many_as_test_samples_in_scope(monkeypatch):
    asked = {}

    def spy(members, nonmembers, forget):
        asked.update(members=len(members), nonmembers=len(nonmembers), forget=len(forget))
        return membership_attack(members, nonmembers, forget)

    monkeypatch.setattr("gradpivot.evaluate.evaluation.membership_attack", spy)
    features, labels = blobs().tensors
    chosen = ForgetSplit.by_class(blobs(), (features[:30], labels[:30]), 0)
    score(trained(), chosen)
    assert asked == {"members": 20, "nonmembers": 20, "forget": 40}


def test_modes_come_back_and_dropout_is_off():
    model = trained().train()
    first, second = score(model, split()), score(model, split())
    assert first == second
    assert model.training


def test_predictions_keep_the_order():
    indices = np.array([5, 3, 100])
    told = predictions(trained(), blobs(), indices, Classification())
    with torch.no_grad():
        expected = trained()(blobs().tensors[0][indices]).double().softmax(1)
    labels = blobs().tensors[1][indices]
    assert told.confidence == pytest.approx(expected[range(3), labels].numpy())


def test_a_model_with_nan_outputs_is_explained():
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = math.nan
    with pytest.raises(GradPivotError, match="not finite"):
        score(model, split())


def test_a_retrained_model_of_the_class_looks_forgotten_and_the_original_does_not():
    told = score(trained(), split())
    assert told.ua < 0.1
    assert told.mia < 0.9


def test_a_part_of_the_retain_set_is_the_same_for_every_model():
    chosen, model = split(), trained()
    part = scored_part(chosen.retain_indices, 40)
    assert len(set(part)) == 40
    assert set(part) < set(chosen.retain_indices)
    assert np.array_equal(part, scored_part(chosen.retain_indices, 40))
    told = evaluate(model, chosen, Classification(), retain_scored=40)
    with torch.no_grad():
        right = model(chosen.train.tensors[0][part]).argmax(1) == chosen.train.tensors[1][part]
    assert told.ra == right.double().mean().item()
    whole = evaluate(model, chosen, Classification())
    assert (told.n_retain, told.ua, told.ta) == (40, whole.ua, whole.ta)
    low, high = told.interval("ra")
    assert high - low > np.subtract(*reversed(whole.interval("ra")))


@pytest.mark.parametrize("count", [None, 10**6])
def test_all_of_the_retain_set_is_scored_otherwise(count):
    chosen = split()
    assert np.array_equal(scored_part(chosen.retain_indices, count), chosen.retain_indices)
