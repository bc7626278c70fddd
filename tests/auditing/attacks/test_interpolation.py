from __future__ import annotations

import pytest

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.interpolation import INTERPOLATION


@pytest.mark.numeric
def test_the_line_ends_at_the_original_and_has_no_barrier_from_itself():
    found = INTERPOLATION.run(planted.case(planted.original()))
    curve = found.details["curve"]
    assert curve["audited"] == curve["original"]
    assert curve["retrained"][0] == 0
    assert curve["retrained"][-1] == curve["original"][-1]
    assert found.details["barrier"]["audited"] == pytest.approx(0, abs=1e-5)
    assert found.details["barrier"]["retrained"] > 0.1
    assert not found.decides


def test_other_weights_or_no_original_are_not_tested():
    with pytest.raises(NotTestedError, match="original"):
        INTERPOLATION.run(planted.case(planted.original(), original=None))
    with pytest.raises(NotTestedError, match="same architecture"):
        INTERPOLATION.run(planted.case(planted.masked(planted.original())))
