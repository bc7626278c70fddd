from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gradpivot.errors import NonFiniteError
from gradpivot.geometry.dual_cone import DualConeWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.nash import nash_weights

sys.path.insert(0, str(Path(__file__).parent))
import paper_formulas as paper
from strategies import pairs, weights

TIGHT = settings(max_examples=150, deadline=None)


def gram(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


@TIGHT
@given(pairs())
def test_solves_the_bargaining_equation(pair):
    """G α = 1/α, checked in fifty digits."""
    f, r = paper.vector(pair[0]), paper.vector(pair[1])
    a, b = nash_weights(gram(*pair))
    g = paper.combined(a, f, b, r)
    assert abs(a * paper.dot(f, g) - 1) < 1e-6
    assert abs(b * paper.dot(r, g) - 1) < 1e-6
    assert abs(paper.norm(g) ** 2 - 2) < 1e-5


@TIGHT
@given(pairs(least_sine=1e-3))
def test_has_the_direction_of_the_dual_cones_center(pair):
    a, b = nash_weights(gram(*pair))
    c, d = DualConeWeighting("center")(gram(*pair))
    assert a * d == pytest.approx(b * c, rel=1e-9)


@TIGHT
@given(pairs(least_sine=1e-3), weights, weights)
def test_the_scale_of_the_losses_is_nothing_to_it(pair, w_f, w_r):
    f, r = pair
    a, b = nash_weights(gram(f, r))
    c, d = nash_weights(gram(w_f * f, w_r * r))
    assert (w_f * c, w_r * d) == pytest.approx((a, b), rel=1e-6)


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")
@pytest.mark.parametrize("ratio", [1.0, 0.2])
@pytest.mark.parametrize("angle", [0.4, 1.5, 2.4])
def test_equals_torchjds_solver(angle, ratio):
    """Their iteration stops at a residual of 1e-3, and starts from where the last call ended: one call each."""
    pytest.importorskip("ecos")
    torch = pytest.importorskip("torch")
    aggregation = pytest.importorskip("torchjd.aggregation")
    f, r = np.array([1.0, 0.0]), ratio * np.array([math.cos(angle), math.sin(angle)])
    a, b = nash_weights(gram(f, r))
    theirs = aggregation.NashMTL(n_tasks=2, max_norm=1.0)(torch.tensor(np.stack([f, r]))).numpy()
    ours = (a * f + b * r) / math.sqrt(2)
    np.testing.assert_allclose(ours, theirs, atol=5e-3)


@given(st.floats(1e-24, 1e24))
def test_degenerate_cases(square):
    assert nash_weights(Gram(0, square, 0)) == pytest.approx((0, square**-0.5))
    assert nash_weights(Gram(square, 0, 0)) == pytest.approx((square**-0.5, 0))
    assert nash_weights(Gram(0, 0, 0)) == (0, 0)
    assert nash_weights(Gram(square, square, -square)) == (0, 0)
    a, b = nash_weights(Gram(square, square, square))
    assert (a + b) * square**0.5 == pytest.approx(2**0.5)


def test_non_finite_numbers_are_an_error():
    with pytest.raises(NonFiniteError, match="not finite"):
        nash_weights(Gram(math.nan, 1, 0))
