from __future__ import annotations

import json

from gradpivot import ForgetSplit, score
from gradpivot.evaluate.scores import Scores
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


def test_a_diverged_run_determines_nothing():
    assert not Scores.of_diverged().mia_determined
