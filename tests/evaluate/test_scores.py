from __future__ import annotations

import json
import math
import re

import pytest

from gradpivot import ForgetSplit, score
from gradpivot.evaluate.classifiers.evaluation import predictions
from gradpivot.evaluate.classifiers.membership import attack_auc
from gradpivot.evaluate.scores import Scores
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs, trained

OLD = {
    "ra": 0.9, "ua": 0.8, "ta": 0.7, "mia": 0.6, "mia_svc": 0.5, "mia_svc_accuracy": 0.9, "mia_svc_determined": True,
    "n_forget": 10, "n_retain": 90, "n_test": 30,
}  # fmt: skip


def test_an_older_record_counts_as_determined():
    scores = Scores.from_dict(OLD)
    assert scores.mia_determined
    assert scores.mia_accuracy is None
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores


def test_an_older_record_with_other_metrics_keeps_them():
    # As many keys as new scores have.
    scores = Scores.from_dict({**OLD, "confidence": 0.3, "other": 0.4})
    assert (scores.mia_determined, scores.confidence, scores.more[1]) == (True, 0.3, ("other", 0.4))
    assert Scores.from_dict(scores.to_dict()) == scores


def test_scores_say_how_well_the_threshold_separates():
    scores = score(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0))
    assert 0.5 <= scores.mia_accuracy <= 1
    assert scores.mia_determined == (scores.mia_accuracy >= 0.55)
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores


def test_scores_of_records_have_auc_and_uncertainty_from_the_same_predictions():
    split = ForgetSplit.random(blobs(), blobs(seed=1), 0.2)
    model, task = trained(), Classification()
    forget = predictions(model, split.train, split.forget_indices, task).confidence
    unseen = predictions(model, split.test, split.test_indices, task).confidence
    scores = score(model, split)
    assert scores.auc == attack_auc(forget, unseen)
    assert scores.uncertainty == pytest.approx(1 - forget.mean())
    assert scores.uncertainty_ideal == pytest.approx(1 - unseen.mean())
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores
    line = scores.text("random")
    assert re.fullmatch(r"RA .+, UA .+, TA .+, AUC .+ %, Uncertainty .+ % \(held-out data .+ %\)", line)
    assert "MIA" not in line


def test_an_older_record_of_records_has_dashes_for_them():
    scores = Scores.from_dict(OLD)
    assert math.isnan(scores.auc)
    assert "auc" not in scores.to_dict()
    assert scores.text("random") == "RA 90.00 %, UA 80.00 %, TA 70.00 %"


def test_scores_of_a_class_are_as_before():
    scores = score(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0))
    assert not scores.more
    assert [part.split()[0] for part in scores.text("class").split(", ")] == ["RA", "UA", "TA", "MIA"]


def test_a_diverged_run_on_records_has_the_worst_of_each():
    lost = Scores.of_diverged("random")
    assert (lost.auc, lost.uncertainty) == (1, 0)
    assert not Scores.of_diverged().more


def test_a_diverged_run_determines_nothing():
    assert not Scores.of_diverged().mia_determined
