"""Means, intervals and ranks against numbers worked out by hand and against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from gradpivot.results._estimate import estimate, spearman, student_quantile

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def test_the_interval_of_one_two_three() -> None:
    found = estimate([1, 2, 3])
    assert (found.mean, found.std, found.n) == (2, 1, 3)
    # t(2 degrees of freedom, 97.5 %) = 4.30265, over √3.
    assert (found.low, found.high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-5)


def test_one_value_has_no_interval_and_none_has_nothing() -> None:
    alone = estimate([0.5, None])
    assert (alone.mean, alone.std, alone.n, alone.low, alone.high) == (0.5, None, 1, None, None)
    assert estimate([None]) is None


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_interval_is_scipys(values: list[float]) -> None:
    found = estimate(values)
    assert found.mean == pytest.approx(math.fsum(values) / len(values))
    if found.std > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, found.mean, stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high))
    assert estimate(reversed(values)) == found


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_spearman_is_scipys_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = ([float(p[axis]) for p in pairs] for axis in (0, 1))
    rho = spearman(x, y)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert rho is None
    else:
        assert rho == pytest.approx(stats.spearmanr(x, y).statistic)


def test_students_quantile() -> None:
    assert student_quantile(1) == pytest.approx(12.7062, abs=1e-4)
    assert student_quantile(4) == pytest.approx(2.77645, abs=1e-5)
