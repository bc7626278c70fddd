from __future__ import annotations

import pytest

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.relearning import RELEARN_1, RELEARN_5, RELEARN_20
from gradpivot.auditing.subject import Subject
from gradpivot.data import ForgetSplit
from gradpivot.testing.problems import blobs, trained


def test_relearning_only_informs():
    assert not any(attack.decides for attack in (RELEARN_1, RELEARN_5, RELEARN_20))


def test_few_records_are_not_tested():
    subject = Subject(model=trained(), split=ForgetSplit.by_index(blobs(), blobs(seed=1), range(20)))
    with pytest.raises(NotTestedError, match="more than 20"):
        RELEARN_20.run(subject)


@pytest.mark.numeric
def test_a_retrained_model_relearns_too_and_an_original_need_not():
    found = RELEARN_5.run(planted.case(planted.original()))
    curve = found.details["curve"]
    assert curve["retrained"][0] == 0
    assert curve["retrained"][-1] > 0.2
    assert found.value == pytest.approx(found.original)
    assert found.difference > found.noise
    assert found.details["half_steps"]["audited"] == 0
    assert found.details["half_steps"]["retrained"] is None or found.details["half_steps"]["retrained"] > 0


@pytest.mark.numeric
def test_without_an_original_there_is_no_half_to_regain():
    found = RELEARN_1.run(planted.case(planted.retrained(5), original=None))
    assert found.details["half_steps"] == {}
    assert found.original is None
