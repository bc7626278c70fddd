from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from gradpivot.geometry.gramian import gram_of
from gradpivot.geometry.weighting import Weights
from gradpivot.loop.combined import Combined
from gradpivot.loop.gradients import Gradients

numbers = st.floats(-2, 2)
# Near the least number of float64 (seen: 2e-309) products are rounded to nothing, and its inverse is infinite.
weightings = st.tuples(numbers, numbers).filter(lambda pair: max(map(abs, pair)) > 1e-100)
lengths = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), lengths, weightings, numbers, numbers)
def test_what_was_overwritten_is_told_from_what_is_left(seed, length, weights, x, y):
    generator = torch.Generator().manual_seed(seed)
    f, r, change = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    f = f * length
    gradients = Gradients([f.clone()], [r.clone()], gram_of([f], [r]), 1.0, 1.0)
    combined = Combined(gradients, Weights(*weights))
    (kept,), (g,) = combined.kept, combined.gradient
    torch.testing.assert_close(g, weights[0] * f + weights[1] * r)
    # Relative to what was subtracted: the overwritten one has the larger share, so that this is no more than its own.
    size = float(change.norm() * (f.norm() + r.norm()))
    assert combined.first_order_change(float(change @ kept), float(change @ g)) == pytest.approx(
        (float(change @ f), float(change @ r)), rel=1e-9, abs=1e-12 * size
    )
    of_kept, of_combined = combined.shares(x, y)
    torch.testing.assert_close(
        of_kept * kept + of_combined * g, x * f + y * r, rtol=1e-9, atol=1e-11 * max(1.0, length)
    )
