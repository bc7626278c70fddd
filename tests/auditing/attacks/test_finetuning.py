from __future__ import annotations

import pytest

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.finetuning import FINETUNE, FINETUNE_FROZEN
from gradpivot.auditing.subject import Subject
from gradpivot.data import ForgetSplit
from gradpivot.results import judge
from gradpivot.testing.problems import blobs, trained


def test_frozen_normalisation_needs_normalisation():
    with pytest.raises(NotTestedError, match="no BatchNorm"):
        FINETUNE_FROZEN.run(planted.case(planted.original()))


def test_the_curve_starts_with_the_model_as_it_is():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    subject = Subject(model=trained(), split=split, retrained=(trained(),))
    found = FINETUNE.run(subject)
    curve = found.details["curve"]
    assert curve["x"] == [0, 5, 20, 100]
    assert curve["audited"][0] == subject.outputs(subject.model, "forget").correct.mean()
    assert curve["audited"] == curve["retrained"]
    assert "original" not in curve
    assert found.value == curve["audited"][-1]


@pytest.mark.numeric
def test_an_original_is_caught_and_a_retrained_model_passes():
    assert judge(FINETUNE.run(planted.case(planted.original())), 10) == "distinguishable"
    assert judge(FINETUNE.run(planted.case(planted.retrained(7))), 10) == "indistinguishable"
