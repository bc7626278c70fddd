from __future__ import annotations

import numpy as np
import pytest

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.collateral import (
    CALIBRATION_ERROR,
    RETAIN_ACCURACY,
    TEST_ACCURACY,
    WORST_CLASS,
    _decisive,
    _Drop,
    expected_calibration_error,
)
from gradpivot.auditing.subject import Outputs
from gradpivot.results import Finding, judge

DECIDING = (TEST_ACCURACY, RETAIN_ACCURACY, WORST_CLASS)


@pytest.mark.numeric
@pytest.mark.parametrize("fields", [{}, {"retrained": ()}], ids=["retrained", "original"])
def test_a_destroyed_model_is_caught(fields):
    subject = planted.case(planted.destroyed(), **fields)
    found = {attack.name: attack.run(subject) for attack in DECIDING}
    assert {judge(one, 3) for one in found.values()} == {"distinguishable"}
    assert {one.control_is for one in found.values()} == {"original" if fields else "retrained"}


@pytest.mark.numeric
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_a_retrained_model_is_intact(seed):
    subject = planted.case(planted.retrained(seed + 3), seed)
    assert "distinguishable" not in {judge(attack.run(subject), 3) for attack in DECIDING}


@pytest.mark.numeric
def test_one_class_lost_is_caught_and_named():
    lost = planted.masked(planted.retrained(5), label=8)
    found = WORST_CLASS.run(planted.case(lost))
    assert judge(found, 3) == "distinguishable"
    assert "class 8 " in found.note
    assert {row["class"] for row in found.details["drops"]} == set(range(10)) - {planted.FORGOTTEN}


def test_without_a_model_to_compare_with_nothing_is_decided():
    subject = planted.case(planted.original(), retrained=(), original=None)
    assert judge(TEST_ACCURACY.run(subject)) == "undetermined"
    assert CALIBRATION_ERROR.run(subject).control is None
    with pytest.raises(NotTestedError, match="retrained or the original"):
        WORST_CLASS.run(subject)


def _outcome(drops: list[_Drop]) -> str:
    worst = _decisive(drops, 0.05)
    found = Finding(
        name="", title="", question="collateral", meaning="", direction="higher", value=worst.drop, control=0.0,
        difference=worst.drop, error=worst.error, noise=0.05, margin=0.15,
    )  # fmt: skip
    return judge(found, 3)


def test_the_worst_of_many_classes_is_judged_with_care():
    sure, small = _Drop(0, 1000, 0.3, 0.02), _Drop(1, 4, 0.0, 0.25)
    intact, unlucky = _Drop(2, 1000, 0.0, 0.01), _Drop(3, 100, 0.11, 0.03)
    assert _outcome([sure, small, intact]) == "distinguishable"
    assert _outcome([intact, small]) == "undetermined"  # four samples cannot show that class 1 is intact
    assert _outcome([intact] * 9) == "indistinguishable"
    assert _outcome([unlucky, *[intact] * 99]) == "undetermined"  # alone it would be 2 standard errors beyond the noise


def test_the_worst_of_many_equal_classes_is_rarely_called_a_drop():
    """Ten classes of 50 samples on which both models err alike: 5 % of draws at most."""
    rng = np.random.default_rng(0)
    from gradpivot.auditing.statistics import paired_difference

    called = 0
    for _ in range(300):
        drops = [_Drop(c, 50, *paired_difference(*(rng.random((2, 50)) < 0.9))) for c in range(10)]
        called += _outcome(drops) == "distinguishable"
    assert called <= 25  # a binomial with 300 × 0.05 exceeds this with probability 0.005


def test_calibration_error_of_known_cases():
    labels = np.zeros(4, dtype=np.int64)
    even = Outputs(np.zeros((4, 2)), labels)
    assert expected_calibration_error(even) == pytest.approx(0.5)  # says 50 %, is always right
    sure = Outputs(np.array([[9e3, 0.0]] * 4), labels)
    assert expected_calibration_error(sure) == pytest.approx(0)
    wrong = Outputs(np.array([[0.0, 9e3]] * 4), labels)
    assert expected_calibration_error(wrong) == pytest.approx(1)
