from __future__ import annotations

import numpy as np
import pytest

import planted
from gradpivot.errors import NonFiniteError


def test_a_masked_logit_is_a_large_negative_number():
    subject = planted.case(planted.masked(planted.original(), float("-inf")))
    found = subject.outputs(subject.model, "forget")
    assert (found.logits[:, planted.FORGOTTEN] == -1e4).all()
    assert np.isfinite(found.margin).all()
    assert np.isfinite(found.entropy).all()
    assert not found.correct.any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_other_infinities_and_nan_are_an_error(value):
    subject = planted.case(planted.masked(planted.original(), value))
    with pytest.raises(NonFiniteError, match="not finite"):
        subject.outputs(subject.model, "forget")
