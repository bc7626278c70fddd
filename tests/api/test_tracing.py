from __future__ import annotations

import pytest

from gradpivot import CUP, GA, SCRUB, NegGradPlus
from gradpivot.api.tracing import over_knob
from gradpivot.errors import GradPivotError


def test_values_of_the_knob():
    assert len(over_knob(CUP())) == 11
    assert len(over_knob(GA())) == 20
    assert [method.beta for method in over_knob(NegGradPlus(), values=(0.9, 0.95))] == [0.9, 0.95]


@pytest.mark.parametrize("values", [None, ()])
def test_a_method_without_values_in_the_paper_needs_some(values):
    with pytest.raises(GradPivotError, match=r"SCRUB has no values of lr to trace; pass at least one \(values=…"):
        over_knob(SCRUB(), values=values)
