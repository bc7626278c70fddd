"""Membership attacks without extra models, on outputs that are chosen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.membership import (
    CONFIDENCE_ATTACK,
    ENTROPY_ATTACK,
    EXPOSURE,
    LOSS_ATTACK,
    MARGIN_ATTACK,
    MARGIN_TPR_01,
    MARGIN_TPR_1,
    NOISE,
)
from gradpivot.auditing.statistics import auc, contrast, delong
from gradpivot.results import judge
from made_outputs import normal, subject_with

AUDITED, RETRAINED, ORIGINAL = 0, 1, 2


def drawn(shifts: list[float], seed: int = 0, n: int = 200, m: int = 300, **options):
    """Forget margins shifted per model, unseen ones not."""
    forget, unseen = normal(seed, shifts, n), normal(seed + 1000, [0.0] * len(shifts), m)
    return subject_with(forget, unseen, **options), forget, unseen


def test_the_margin_attack_reports_the_auc_of_every_model():
    subject, forget, unseen = drawn([0.4, 0.0, 1.5])
    found = MARGIN_ATTACK.run(subject)
    areas = [auc(one, other) for one, other in zip(forget, unseen, strict=True)]
    assert [found.value, found.control, found.original] == pytest.approx(areas)
    difference, error = contrast(*delong(forget, unseen), AUDITED, RETRAINED)
    assert (found.difference, found.error) == (pytest.approx(difference), pytest.approx(error))
    assert found.interval[0] < found.value < found.interval[1]
    assert (found.n, found.noise, found.unit, found.direction) == (500, NOISE, "", "two-sided")


def test_curves_are_plain_data():
    subject, *_ = drawn([0.4, 0.0, 1.5])
    curves = MARGIN_ATTACK.run(subject).details["roc"]
    assert json.loads(json.dumps(curves)) == curves
    assert list(curves) == ["audited", "retrained", "original"]
    assert all(len(curve["fpr"]) == len(curve["tpr"]) <= 201 for curve in curves.values())
    assert ENTROPY_ATTACK.run(subject).details == {}


def test_loss_confidence_and_margin_are_one_attack():
    subject, *_ = drawn([0.4, 0.0, 1.5])
    margin = MARGIN_ATTACK.run(subject)
    for attack in (LOSS_ATTACK, CONFIDENCE_ATTACK):
        found = attack.run(subject)
        assert found.value == pytest.approx(margin.value, abs=1e-6)
        assert not found.decides
        assert "Orders" in found.note


def test_without_a_retrained_model_chance_is_the_control():
    subject, forget, unseen = drawn([0.4, 1.5], retrained=0)
    found = MARGIN_ATTACK.run(subject)
    assert found.control == 0.5
    assert found.difference == pytest.approx(auc(forget[0], unseen[0]) - 0.5)
    assert found.error == pytest.approx(np.sqrt(delong(forget[0], unseen[0])[1][0, 0]))
    assert "compared with 0.5" in found.note
    assert "typical" not in found.note
    chosen, *_ = drawn([0.4, 1.5], retrained=0, kind="index")
    assert "typical" in MARGIN_ATTACK.run(chosen).note


def test_further_retrained_models_give_the_noise():
    subject, forget, unseen = drawn([0.4, 0.0, 0.1, -0.2], retrained=3, original=False)
    found = MARGIN_ATTACK.run(subject)
    areas = [auc(one, other) for one, other in zip(forget, unseen, strict=True)]
    assert found.noise == pytest.approx(max(abs(areas[2] - areas[1]), abs(areas[3] - areas[1])))
    assert found.original is None


@pytest.mark.parametrize("attack", [MARGIN_ATTACK, ENTROPY_ATTACK])
def test_the_control_against_itself_is_indistinguishable(attack):
    subject, *_ = drawn([0.0, 0.0, 1.5])
    found = attack.run(replace(subject, model=subject.retrained[0]))
    assert found.difference == 0
    assert judge(found, 3) == "indistinguishable"


@pytest.mark.parametrize("retrained", [0, 1])
def test_models_that_never_saw_the_records_are_rarely_distinguishable(retrained):
    """The nominal rate is 5 %: of 40 draws at most 7 (probability 0.3 % of more)."""
    shifts = [0.0] * (1 + retrained)
    findings = [
        MARGIN_ATTACK.run(drawn(shifts, seed, n=60, m=80, retrained=retrained, original=False)[0]) for seed in range(40)
    ]
    assert sum(judge(found) == "distinguishable" for found in findings) <= 7


@pytest.mark.parametrize(("shift", "above"), [(1.0, True), (-1.0, False)])
def test_remembered_and_over_forgotten_records_stand_out(shift, above):
    for seed in range(5):
        found = MARGIN_ATTACK.run(drawn([shift, 0.0, 1.5], seed)[0])
        assert judge(found, 3) == "distinguishable"
        assert (found.value > 0.5) == above


def test_a_class_is_compared_with_its_own_unseen_samples():
    subject, forget, unseen = drawn([1.0, 0.0, 1.5], kind="class")
    found = MARGIN_ATTACK.run(subject)
    assert found.n == 500
    assert found.value == pytest.approx(auc(forget[0], unseen[0]))


def test_rates_at_low_false_positives():
    subject, forget, unseen = drawn([2.0, 0.0, 3.0])
    found = MARGIN_TPR_1.run(subject)
    assert found.value == pytest.approx((forget[0] > np.sort(unseen[0])[-4]).mean())
    assert found.interval[0] < found.value < found.interval[1]
    assert found.control < found.value < found.original
    assert found.difference == pytest.approx(found.value - found.control)
    assert found.error > 0
    assert not found.decides
    assert "too few" not in found.note


def test_too_few_unseen_samples_for_the_rate_are_said():
    subject, forget, unseen = drawn([2.0, 3.0], retrained=0)
    found = MARGIN_TPR_01.run(subject)
    assert found.value == pytest.approx((forget[0] > unseen[0].max()).mean())
    assert "300 unseen samples are too few" in found.note
    assert found.details == {"false_positives_allowed": 0, "unseen": 300}
    assert found.control == pytest.approx(1 / 301)


def test_exposure_of_retained_records_is_compared_with_the_original():
    """Retained margins are 0 for all models; test margins lie below for the audited one and above for the original."""
    forget = np.zeros((3, 10))
    unseen = np.stack([np.full(40, -1.0), np.zeros(40), np.ones(40)])
    found = EXPOSURE.run(subject_with(forget, unseen))
    assert (found.value, found.control, found.original) == (1.0, 0.0, 0.0)
    assert found.difference == 1
    assert found.error > 0
    assert "retrained model has 0.500" in found.note
    with pytest.raises(NotTestedError, match="original"):
        EXPOSURE.run(subject_with(forget, unseen, retrained=2, original=False))


def test_no_unseen_sample_is_a_reason():
    subject, *_ = drawn([1.0, 0.0, 1.5], kind="class")
    emptied = replace(subject.split, test=torch.utils.data.Subset(subject.split.test, list(range(300, 320))))
    with pytest.raises(NotTestedError, match="no unseen sample"):
        MARGIN_ATTACK.run(replace(subject, split=emptied))


def test_the_callers_random_state_is_unchanged():
    subject, *_ = drawn([0.4, 0.0, 1.5])
    before, legacy = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    for attack in (MARGIN_ATTACK, MARGIN_TPR_1, EXPOSURE):
        attack.run(subject)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == legacy).all()
