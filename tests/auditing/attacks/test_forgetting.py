from __future__ import annotations

import pytest

import planted
from gradpivot.auditing.attacks.forgetting import FORGET_ACCURACY
from gradpivot.auditing.subject import Subject
from gradpivot.results import judge


@pytest.mark.numeric
@pytest.mark.parametrize("retrained", [True, False])
def test_an_original_is_caught_with_or_without_a_retrained_model(retrained):
    fields = {} if retrained else {"retrained": (), "original": None}
    found = FORGET_ACCURACY.run(planted.case(planted.original(), **fields))
    assert judge(found, 10) == "distinguishable"
    assert found.control == 0
    assert found.control_is == ("retrained" if retrained else "theory")


@pytest.mark.numeric
@pytest.mark.parametrize("value", [-1e9, float("-inf")])
def test_a_mask_passes(value):
    found = FORGET_ACCURACY.run(planted.case(planted.masked(planted.original(), value)))
    assert found.value == 0
    assert judge(found, 10) == "indistinguishable"


@pytest.mark.numeric
def test_for_records_nothing_is_known_without_a_retrained_model():
    split = planted.record_split()
    found = FORGET_ACCURACY.run(Subject(model=planted.original(), split=split))
    assert found.control is None
    assert judge(found) == "undetermined"
    compared = FORGET_ACCURACY.run(
        Subject(model=planted.original(), split=split, retrained=(planted.retrained_on_records(),))
    )
    assert compared.control > 0.5
