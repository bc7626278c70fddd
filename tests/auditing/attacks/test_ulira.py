"""U-LiRA on margins that are drawn."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.ulira import ULIRA, ULIRA_TPR
from gradpivot.auditing.lira import lira_auc, lira_tpr
from gradpivot.auditing.subject import Subject
from gradpivot.auditing.worlds import Worlds
from gradpivot.results import judge
from made_outputs import subject_with


def made_worlds(left: float, seed: int = 0, count: int = 16, records: int = 60) -> Worlds:
    """Training adds 2σ to the margin of a record, of which a share ``left`` stays after unlearning."""
    generator = np.random.default_rng(seed)
    inside = generator.random((count, records)) < 0.5
    centre = 3 * generator.normal(size=records)
    shadow, retrained, unlearned = (centre + generator.normal(size=(3, count, records))).copy()
    return Worlds(
        inside=inside,
        shadow=shadow + 2 * inside,
        retrained=retrained,
        unlearned=unlearned + 2 * left * inside,
        indices=np.arange(records) * 3,
        method="cup",
    )


def subject_in(worlds: Worlds | None) -> Subject:
    return replace(subject_with(np.zeros((2, 5)), np.zeros((2, 5))), worlds=worlds)


def test_each_ensemble_is_attacked():
    worlds = made_worlds(0.5)
    found, rate = ULIRA.run(subject_in(worlds)), ULIRA_TPR.run(subject_in(worlds))
    margins = (worlds.unlearned, worlds.retrained, worlds.shadow)
    assert [found.value, found.control, found.original] == [lira_auc(m, worlds.inside) for m in margins]
    assert [rate.value, rate.control, rate.original] == [lira_tpr(m, worlds.inside) for m in margins]
    assert found.difference == found.value - found.control
    assert (found.n, found.direction, found.decides, rate.decides) == (16 * 60, "higher", True, False)
    assert found.interval[0] < found.value < found.interval[1]
    assert "60 records in 16 worlds, each unlearned with cup." in found.note


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_is_found(seed):
    found = ULIRA.run(subject_in(made_worlds(0.6, seed)))
    assert 0.55 < found.value < found.original
    assert judge(found, 3) == "distinguishable"


def test_retraining_is_rarely_distinguishable():
    outcomes = [judge(ULIRA.run(subject_in(made_worlds(0.0, seed, records=30)))) for seed in range(8)]
    assert outcomes.count("distinguishable") <= 2


def test_an_exact_retrain_is_indistinguishable():
    worlds = made_worlds(0.0)
    found = ULIRA.run(subject_in(replace(worlds, unlearned=worlds.retrained)))
    assert (found.difference, found.error) == (0, 0)
    assert judge(found) == "indistinguishable"


def test_details_are_plain_data_with_the_worst_record_first():
    worlds = made_worlds(0.0)
    worlds.unlearned[:, 7] += 10 * worlds.inside[:, 7]
    worlds.inside[:, 9] = False
    details = ULIRA.run(subject_in(worlds)).details
    assert json.loads(json.dumps(details)) == details
    assert list(details["roc"]) == list(details["tpr"]) == ["audited", "retrained", "original"]
    records = details["records"]
    assert records["index"][0] == 21
    assert records["score"][0] == 1
    assert records["score"] == sorted(records["score"], reverse=True)
    assert 27 not in records["index"], "a record that is never inside has no AUC"


def test_diverged_worlds_are_said():
    found = ULIRA.run(subject_in(replace(made_worlds(0.0), diverged=2)))
    assert "2 further worlds diverged" in found.note


@pytest.mark.parametrize("attack", [ULIRA, ULIRA_TPR])
def test_what_it_needs(attack):
    with pytest.raises(NotTestedError, match="U-LiRA needs shadow models"):
        attack.run(subject_in(None))
    with pytest.raises(NotTestedError, match="other software"):
        attack.run(subject_in(replace(made_worlds(0.0), unlearned=None)))
    with pytest.raises(NotTestedError, match="at least 4 worlds"):
        attack.run(subject_in(made_worlds(0.0, count=3)))
    with pytest.raises(NotTestedError, match="inside at least two"):
        attack.run(subject_in(replace(made_worlds(0.0), inside=np.zeros((16, 60), dtype=bool))))
