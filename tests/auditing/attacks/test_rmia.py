"""RMIA on outputs that are chosen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.membership import MARGIN_ATTACK
from gradpivot.auditing.attacks.rmia import RMIA_ATTACK, population_scores
from gradpivot.auditing.statistics import auc
from gradpivot.results import judge
from made_outputs import normal, subject_with


def drawn(shifts: list[float], seed: int = 0, spread: float = 3.0, **options):
    """Records differ in difficulty (``spread``), on which all models agree."""
    forget, unseen = (
        spread * normal(seed, [0.0] * len(shifts), 120),
        spread * normal(seed + 99, [0.0] * len(shifts), 150),
    )
    forget += np.array(shifts)[:, None]
    return subject_with(forget, unseen, **options), forget, unseen


def chance(margins: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-margins))


@pytest.mark.parametrize(("kind", "a"), [("random", 0.3), ("class", 1.0)])
def test_ratios_are_those_of_the_paper(kind, a):
    """Audited, control, two references, original: by the formula in probabilities."""
    subject, forget, unseen = drawn([2.0, 0.0, 0.0, 0.0, 3.0], spread=1.0, retrained=3, kind=kind)
    found = RMIA_ATTACK.run(subject)
    forget, unseen = (
        chance(one) / (0.5 * ((1 + a) * chance(one[2:4]).mean(axis=0) + 1 - a)) for one in (forget, unseen)
    )
    assert found.value == pytest.approx(auc(forget[0], unseen[0]), abs=1e-3)
    assert found.control == pytest.approx(auc(forget[1], unseen[1]), abs=1e-3)
    assert found.original == pytest.approx(auc(forget[4], unseen[4]), abs=1e-3)
    assert found.difference == pytest.approx(found.value - found.control)
    records = found.details["records"]
    assert json.loads(json.dumps(records)) == records
    by_record = dict(zip(records["index"], records["score"], strict=True))
    expected = (forget[0][:, None] / unseen[0][None] >= 1).mean(axis=1)
    np.testing.assert_allclose([by_record[i] for i in subject.indices("forget")], expected, atol=0.01)
    assert records["score"] == sorted(records["score"], reverse=True)


def test_references_see_more_than_the_margin_alone():
    """Where records differ much in difficulty, dividing it out helps."""
    gains = []
    for seed in range(5):
        subject, *_ = drawn([2.0, 0.0, 0.0, 2.0], seed, retrained=2)
        gains.append(RMIA_ATTACK.run(subject).value - MARGIN_ATTACK.run(subject).value)
    assert np.mean(gains) > 0.01


def test_one_retrained_model_is_the_reference_and_chance_the_control():
    subject, *_ = drawn([2.0, 0.0, 3.0])
    found = RMIA_ATTACK.run(subject)
    assert found.control == 0.5
    assert found.difference == found.value - 0.5
    assert "only retrained model is the reference" in found.note
    assert judge(found) == "distinguishable"


def test_the_reference_itself_is_at_chance():
    """For a class all ratios are 1; otherwise the order is that of the confidence."""
    subject, *_ = drawn([0.0, 0.0, 3.0], kind="class")
    found = RMIA_ATTACK.run(replace(subject, model=subject.retrained[0]))
    assert (found.value, found.difference) == (0.5, 0)
    assert found.error > 0
    subject, *_ = drawn([0.0, 0.0, 3.0])
    found = RMIA_ATTACK.run(replace(subject, model=subject.retrained[0]))
    assert found.value == pytest.approx(MARGIN_ATTACK.run(subject).control, abs=1e-3)


def test_the_control_itself_differs_by_nothing():
    subject, *_ = drawn([0.0, 0.0, 0.0, 3.0], retrained=2)
    found = RMIA_ATTACK.run(replace(subject, model=subject.retrained[0]))
    assert found.difference == 0
    assert judge(found) == "indistinguishable"


def test_it_needs_a_retrained_model():
    subject, *_ = drawn([0.0, 3.0], retrained=0)
    with pytest.raises(NotTestedError, match="RMIA needs a retrained model"):
        RMIA_ATTACK.run(subject)


def test_population_scores_count_the_population():
    ratios, population = np.log([0.5, 1.0, 2.0, 4.0]), np.log([1.0, 1.0, 2.0, 3.0])
    assert population_scores(ratios, population).tolist() == [0, 0.5, 0.75, 1]
    assert population_scores(ratios, population, gamma=1.9).tolist() == [0, 0, 0.5, 0.75]
