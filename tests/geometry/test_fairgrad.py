from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry.fairgrad import FairWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.nash import nash_weights

sys.path.insert(0, str(Path(__file__).parent))
from strategies import pairs

TIGHT = settings(max_examples=150, deadline=None)
# Their oracle takes some milliseconds each.
SLOW = settings(max_examples=40, deadline=None)

lengths = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)
angles = st.floats(1e-3, math.pi - 1e-3)
alphas = st.floats(0.5, 4)


def grams(f: float, r: float, angle: float) -> Gram:
    return Gram(f * f, r * r, f * r * math.cos(angle))


def gram(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


def by_halving(of: Gram, alpha: float) -> tuple[mpf, mpf]:
    """Both equations as they are printed, in fifty digits: one for t = b/a, halved on where both gains are positive."""
    with mp.workdps(50):
        ff, rr, fr = map(mpf, of)
        p = 1 / mpf(alpha)
        low, high = (mpf("1e-300"), mpf("1e300")) if fr >= 0 else (-fr / rr, -ff / fr)
        low, high = mp.log(low), mp.log(high)
        for _ in range(180):
            middle = (low + high) / 2
            t = mp.exp(middle)
            if t**p * (fr + rr * t) < ff + fr * t:
                low = middle
            else:
                high = middle
        a = (ff + fr * t) ** (-1 / (1 + p))
        return a, a * t


@TIGHT
@given(lengths, angles, st.floats(1e-4, 1e4), alphas)
def test_solves_its_equation(length, angle, ratio, alpha):
    """G w = w^(−1/α)."""
    ff, rr, fr = of = grams(length, length * ratio, angle)
    a, b = FairWeighting(alpha)(of)
    assert (ff * a + fr * b) * a ** (1 / alpha) == pytest.approx(1, rel=1e-5)
    assert (fr * a + rr * b) * b ** (1 / alpha) == pytest.approx(1, rel=1e-5)


@SLOW
@given(pairs(), alphas)
def test_is_the_solution_in_fifty_digits(pair, alpha):
    """Lengths up to 24 orders of magnitude apart: there the gains are far below what floats can subtract."""
    of = gram(*pair)
    a, b = FairWeighting(alpha)(of)
    exact_a, exact_b = by_halving(of, alpha)
    assert abs(a / exact_a - 1) < 1e-6
    assert abs(b / exact_b - 1) < 1e-6


@TIGHT
@given(lengths, lengths, angles, alphas)
def test_does_not_care_which_loss_comes_first(f, r, angle, alpha):
    ff, rr, fr = of = grams(f, r, angle)
    a, b = FairWeighting(alpha)(of)
    assert (b, a) == pytest.approx(FairWeighting(alpha)(Gram(rr, ff, fr)), rel=1e-12)


@TIGHT
@given(pairs(), lengths, alphas)
def test_scales_with_both_gradients(pair, length, alpha):
    """G → s²G makes w → s^(−2α/(1+α)) w: no absolute constant is in it."""
    f, r = pair
    expected = FairWeighting(alpha)(gram(f, r)).scaled(length ** (-2 * alpha / (1 + alpha)))
    assert FairWeighting(alpha)(gram(length * f, length * r)) == pytest.approx(expected, rel=1e-6)


@TIGHT
@given(pairs())
def test_with_alpha_one_it_is_nash(pair):
    assert FairWeighting(1.0)(gram(*pair)) == pytest.approx(nash_weights(gram(*pair)), rel=1e-6)


@TIGHT
@given(lengths, lengths, alphas)
def test_orthogonal_gradients_have_nothing_to_share(f, r, alpha):
    """Each loss has the weight it has alone."""
    alone = [(x * x) ** (-alpha / (1 + alpha)) for x in (f, r)]
    assert FairWeighting(alpha)(Gram(f * f, r * r, 0.0)) == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize("angle", [0.4, 1.5, 2.4])
def test_equals_torchjds_solver(angle, ratio, alpha):
    """Where lengths are alike and gradients not nearly opposed: elsewhere theirs stops before the solution."""
    torch = pytest.importorskip("torch")
    aggregation = pytest.importorskip("torchjd.aggregation")
    ff, rr, fr = of = grams(1.0, ratio, angle)
    matrix = torch.tensor([[ff, fr], [fr, rr]], dtype=torch.float64)
    theirs = aggregation.FairGradWeighting(alpha=alpha)(matrix).tolist()
    assert FairWeighting(alpha)(of) == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("alpha", [1e-3, 0.03, 30.0, 1e4])
@pytest.mark.parametrize("ratio", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("angle", [1e-5, 0.4, math.pi / 2, 2.7, math.pi - 1e-5])
def test_no_fairness_overflows(angle, ratio, alpha):
    weights = FairWeighting(alpha)(grams(1.0, ratio, angle))
    assert all(math.isfinite(w) and w >= 0 for w in weights)
    assert max(weights) > 0


@given(st.floats(1e-24, 1e24), st.floats(0.5, 4))
def test_degenerate_cases(square, alpha):
    fair, alone = FairWeighting(alpha), square ** (-alpha / (1 + alpha))
    assert fair(Gram(0, square, 0)) == pytest.approx((0, alone))
    assert fair(Gram(square, 0, 0)) == pytest.approx((alone, 0))
    assert fair(Gram(0, 0, 0)) == (0, 0)
    assert fair(Gram(square, square, -square)) == (0, 0)
    a, b = fair(Gram(square, square, square))
    assert a == pytest.approx(b)
    assert (a + b) * a ** (1 / alpha) * square == pytest.approx(1)


def test_what_is_no_fairness_or_no_gradient_is_an_error():
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(GradPivotError, match="alpha is"):
            FairWeighting(bad)
    with pytest.raises(NonFiniteError, match="not finite"):
        FairWeighting()(Gram(math.nan, 1, 0))
