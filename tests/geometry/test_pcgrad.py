from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mpf

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pcgrad import PCGradWeighting
from gradpivot.geometry.weighting import LossWeighted, Weights

sys.path.insert(0, str(Path(__file__).parent))
import paper_formulas as paper
from strategies import pairs, weights

TIGHT = settings(max_examples=150, deadline=None)
reductions = st.sampled_from(["sum", "mean"])


def gram(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


def pcgrad_weights(ff, rr, fr, *, reduction="sum", forget_weight=1.0, retain_weight=1.0) -> Weights:
    return LossWeighted(PCGradWeighting(reduction), forget_weight, retain_weight)(Gram(ff, rr, fr))


def surgery(f: list[mpf], r: list[mpf]) -> list[mpf]:
    """Algorithm 1 of Yu et al., loop and all, for two tasks."""
    projected = []
    for mine, other in ((f, r), (r, f)):
        product = paper.dot(mine, other)
        projected.append(paper.combined(1, mine, -product / paper.dot(other, other), other) if product < 0 else mine)
    return paper.combined(1, projected[0], 1, projected[1])


def error(f, r, got, expected) -> mpf:
    """How far a·f + b·r is from the expected vector, relative to the two addends before they cancel."""
    fm, rm = paper.vector(f), paper.vector(r)
    missed = paper.combined(1, paper.combined(*[got[0], fm, got[1], rm]), -1, expected)
    return paper.norm(missed) / (abs(got[0]) * paper.norm(fm) + abs(got[1]) * paper.norm(rm))


@TIGHT
@given(pairs(), weights, weights)
def test_equals_the_algorithm_in_fifty_digits(pair, w_f, w_r):
    f, r = pair
    fm, rm = ([mpf(w) * x for x in paper.vector(v)] for w, v in ((w_f, f), (w_r, r)))
    got = pcgrad_weights(*gram(f, r), forget_weight=w_f, retain_weight=w_r)
    assert error(f, r, got, surgery(fm, rm)) < 1e-12


@TIGHT
@given(pairs(), reductions, weights, weights)
def test_conflicts_with_neither(pair, reduction, w_f, w_r):
    f, r = pair
    a, b = LossWeighted(PCGradWeighting(reduction), w_f, w_r)(gram(f, r))
    assert a > 0
    assert b > 0
    fm, rm = paper.vector(f), paper.vector(r)
    g = paper.combined(a, fm, b, rm)
    for other in (fm, rm):
        assert paper.dot(g, other) >= -1e-7 * paper.norm(g) * paper.norm(other)


@TIGHT
@given(pairs())
def test_no_conflict_no_surgery(pair):
    f, r = pair
    got = pcgrad_weights(*gram(f, r))
    if f @ r >= 0:
        assert got == (1, 1)
    else:
        assert got == (1 - f @ r / (f @ f), 1 - f @ r / (r @ r))
        assert min(got) >= 1


@TIGHT
@given(pairs(), weights, weights)
def test_exchanging_the_roles_exchanges_the_weights(pair, w_f, w_r):
    ff, rr, fr = gram(*pair)
    one = pcgrad_weights(ff, rr, fr, forget_weight=w_f, retain_weight=w_r)
    other = pcgrad_weights(rr, ff, fr, forget_weight=w_r, retain_weight=w_f)
    assert one == (other.retain, other.forget)


@TIGHT
@given(pairs())
def test_mean_is_half_the_sum(pair):
    one, half = (PCGradWeighting(reduction)(gram(*pair)) for reduction in ("sum", "mean"))
    assert half == one.scaled(0.5)


@TIGHT
@given(pairs(least_sine=1e-3))
def test_equals_torchjds(pair):
    """The sum is TorchJD's scale, and two losses leave its random order nothing to decide."""
    torch = pytest.importorskip("torch")
    aggregation = pytest.importorskip("torchjd.aggregation")
    from gradpivot.geometry.torchjd import as_torchjd

    ff, rr, fr = gram(*pair)
    gramian = torch.tensor([[ff, fr], [fr, rr]], dtype=torch.float64)
    torch.testing.assert_close(
        as_torchjd(PCGradWeighting())(gramian), aggregation.PCGradWeighting()(gramian), rtol=1e-12, atol=0
    )


@TIGHT
@given(pairs(least_sine=1e-10, most_sine=9e-7), weights, weights)
def test_collinear_gradients_follow_the_stated_rule(pair, w_f, w_r):
    got = pcgrad_weights(*gram(*pair), forget_weight=w_f, retain_weight=w_r)
    assert got == ((w_f, w_r) if pair[0] @ pair[1] > 0 else (0, 0))


@given(st.floats(1e-24, 1e24))
def test_vanishing_gradients(square):
    assert pcgrad_weights(0, square, 0, retain_weight=3) == (0, 3)
    assert pcgrad_weights(square, 0, 0, forget_weight=2) == (2, 0)
    assert pcgrad_weights(square, 0, 0, reduction="mean") == (0.5, 0)
    assert pcgrad_weights(square, square, -square / 2, forget_weight=0) == (0, 1)
    assert pcgrad_weights(0, 0, 0) == (0, 0)


def test_bad_input_is_an_error():
    with pytest.raises(NonFiniteError, match="not finite"):
        pcgrad_weights(math.nan, 1, 0)
    with pytest.raises(GradPivotError, match="not the inner products"):
        pcgrad_weights(1, 1, -2)
    with pytest.raises(GradPivotError, match="choose one of sum, mean"):
        PCGradWeighting("median")
    with pytest.raises(GradPivotError, match="forget weight is -1"):
        LossWeighted(PCGradWeighting(), -1.0)
