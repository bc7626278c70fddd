from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from gradpivot import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import evaluate, predictions
from gradpivot.evaluate.metrics.registry import steering_metrics
from gradpivot.evaluate.relearning import RELEARN_STEPS, relearn_plan
from gradpivot.targets.conditions import Seen
from gradpivot.targets.looking import FORWARD, Looker, steering_split
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs, trained

TASK = Classification()
ALONE = [name for name in steering_metrics() if name != "rmia"]
"""The metrics that need no reference models."""


def some_split(kind: str = "class") -> ForgetSplit:
    options = {"validation": blobs(seed=2)}
    if kind == "class":
        return ForgetSplit.by_class(blobs(), blobs(seed=1), 0, **options)
    return ForgetSplit.random(blobs(), blobs(seed=1), 0.2, **options)


@pytest.mark.parametrize("kind", ["class", "random"])
def test_it_sees_what_an_evaluation_on_the_validation_data_sees(kind):
    steering = steering_split(some_split(kind))
    seen = Looker(steering, TASK, 100.0).look(trained(), ALONE)
    scores = evaluate(trained(), steering, TASK)
    assert (seen.ra, seen.ua, seen.ta, seen.mia) == scores.vector()


@pytest.mark.parametrize("metric", ALONE)
def test_a_score_alone_is_that_among_all(metric):
    steering = steering_split(some_split())
    everything = Looker(steering, TASK, 100.0).look(trained(), ALONE)
    alone = Looker(steering, TASK, 100.0).look(trained(), {metric})
    assert getattr(alone, metric) == getattr(everything, metric)


@pytest.mark.parametrize("kind", ["class", "random"])
def test_the_auc_is_against_never_seen_data_of_the_same_kind(kind):
    split = some_split(kind)
    model, alike = trained(), np.arange(len(split.validation))
    if kind == "class":
        alike = alike[split.validation.tensors[1].numpy() == 0]
    forget = predictions(model, split.train, split.forget_indices, TASK).confidence
    unseen = predictions(model, split.validation, alike, TASK).confidence
    auc = roc_auc_score(np.repeat([1, 0], [len(forget), len(unseen)]), np.concatenate([forget, unseen]))
    seen = Looker(steering_split(split), TASK, 100.0).look(model, {"auc"})
    assert seen.auc == pytest.approx(auc)


def test_without_unseen_data_of_the_class_there_is_no_auc():
    two = blobs(seed=2)
    keep = two.tensors[1] != 0
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0, validation=(two.tensors[0][keep], two.tensors[1][keep]))
    with pytest.raises(GradPivotError, match="AUC cannot be measured"):
        Looker(steering_split(split), TASK, 100.0).look(trained(), {"auc"})


def test_a_look_costs_the_samples_it_passes():
    split = some_split()
    looker = Looker(steering_split(split), TASK, 100.0)
    looker.look(trained(), {"ua"})
    assert looker.spent == pytest.approx(FORWARD * 40 / 100)
    looker.look(trained(), {"ra"})
    assert looker.spent == pytest.approx(FORWARD * (40 + 80) / 100)
    looker.look(trained(), {"ra"}, quick=True)
    assert looker.spent == pytest.approx(FORWARD * (40 + 80 + 5) / 100)


def test_a_quick_look_sees_the_samples_that_were_least_sure():
    split = some_split()
    looker, model = Looker(steering_split(split), TASK, 100.0), trained()
    full = looker.look(model, {"ra"})
    assert looker.look(model, {"ra"}, quick=True) == full
    with torch.no_grad():
        model.layers[-1].bias[:] = torch.tensor([100.0, 0.0, 0.0])
    # Five of eighty are looked at again, and all of them are wrong now.
    assert looker.look(model, {"ra"}, quick=True).ra == pytest.approx(full.ra - 5 / 80, abs=1 / 80)
    assert looker.look(model, {"ra"}).ra == 0


def test_a_model_without_finite_outputs_has_forgotten_nothing_and_kept_nothing():
    model = trained()
    with torch.no_grad():
        model.layers[-1].bias[:] = float("nan")
    assert Looker(steering_split(some_split()), TASK, 1.0).look(model, {"ua"}) == Seen.of_nothing()


def test_the_models_modes_stay():
    model = trained().train()
    Looker(steering_split(some_split()), TASK, 1.0).look(model, {"ua", "ra"})
    assert all(module.training for module in model.modules())


def test_relearning_costs_its_gradients_and_its_passes():
    split = steering_split(some_split())
    looker, plan = Looker(split, TASK, 1000.0), relearn_plan(split)
    seen = looker.look(trained(), {"relearn"})
    assert looker.spent == pytest.approx((plan.gradients + FORWARD * len(RELEARN_STEPS) * len(plan.rest)) / 1000)
    assert 0.9 < seen.relearn <= 1


def test_the_margin_orders_like_the_confidence():
    seen = Looker(steering_split(some_split()), TASK, 100.0).look(trained(), {"auc", "margin_auc"})
    assert seen.margin_auc == seen.auc


def test_rmia_compares_with_references_once():
    split = steering_split(some_split())
    with pytest.raises(GradPivotError, match="RMIA needs reference models; pass references="):
        Looker(split, TASK, 100.0).look(trained(), {"rmia"})
    looker = Looker(split, TASK, 100.0, references=[trained()])
    assert looker.look(trained(), {"rmia"}).rmia == 0.5
    first = looker.spent
    looker.look(trained(), {"rmia"})
    assert looker.spent == pytest.approx(1.5 * first)


def test_too_few_samples_to_relearn_from_are_refused():
    split = ForgetSplit.by_index(blobs(), blobs(seed=1), range(5), validation=blobs(seed=2))
    with pytest.raises(GradPivotError, match="RELEARN needs more than 5"):
        Looker(steering_split(split), TASK, 100.0).look(trained(), {"relearn"})
