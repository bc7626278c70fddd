from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from mpmath import mpf

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.geometry.dual_cone import DualConeWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pcgrad import PCGradWeighting
from gradpivot.geometry.pivot import pivot_weights
from gradpivot.geometry.weighting import LossWeighted, Weights

sys.path.insert(0, str(Path(__file__).parent))
import paper_formulas as paper
from strategies import pairs, weights

TIGHT = settings(max_examples=150, deadline=None)
SLOW = settings(max_examples=60, deadline=None)
VARIANTS = ("center", "avg", "proj")
variants = st.sampled_from(VARIANTS)


def gram(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


def dual_cone_weights(ff, rr, fr, variant="center", *, forget_weight=1.0, retain_weight=1.0) -> Weights:
    return LossWeighted(DualConeWeighting(variant), forget_weight, retain_weight)(Gram(ff, rr, fr))


@st.composite
def comparable(draw: st.DrawFn, **sines: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose lengths are within a factor of ten, so that f + r is inside the dual cone about as often as not."""
    f, r = draw(pairs(**sines))
    length = draw(st.floats(0.1, 10))
    return f / np.linalg.norm(f), r / np.linalg.norm(r) * length


def published(f: list[mpf], r: list[mpf], variant: str) -> list[mpf]:
    """The three updates as published, with T = f + r."""
    total = paper.combined(1, f, 1, r)
    along_f, along_r = paper.dot(total, f), paper.dot(total, r)
    if variant == "center":
        middle = paper.combined(1 / paper.norm(f), f, 1 / paper.norm(r), r)
        return [paper.dot(total, middle) / paper.dot(middle, middle) * x for x in middle]
    if along_f >= 0 and along_r >= 0:
        return total
    off_f = paper.combined(1, total, -along_f / paper.dot(f, f), f)
    off_r = paper.combined(1, total, -along_r / paper.dot(r, r), r)
    if variant == "avg":
        return paper.combined(0.5, off_f, 0.5, off_r)
    return off_r if along_r < 0 else off_f


def assert_equals_the_published(f, r, variant, w_f=1.0, w_r=1.0):
    fm, rm = ([mpf(w) * x for x in paper.vector(v)] for w, v in ((w_f, f), (w_r, r)))
    # On the very border of the dual cone rounding decides on which side f + r lies.
    total, lengths = paper.combined(1, fm, 1, rm), (paper.norm(fm), paper.norm(rm))
    assume(all(abs(paper.dot(total, v)) > 1e-9 * n * sum(lengths) for v, n in zip((fm, rm), lengths, strict=True)))
    a, b = dual_cone_weights(*gram(f, r), variant, forget_weight=w_f, retain_weight=w_r)
    fm, rm, expected = paper.vector(f), paper.vector(r), published(fm, rm, variant)
    missed = paper.combined(1, paper.combined(a, fm, b, rm), -1, expected)
    assert paper.norm(missed) <= 1e-12 * (abs(a) * paper.norm(fm) + abs(b) * paper.norm(rm))


@SLOW
@given(pairs(), variants, weights, weights)
def test_equals_the_published_form_in_fifty_digits(pair, variant, w_f, w_r):
    assert_equals_the_published(*pair, variant, w_f, w_r)


@SLOW
@given(comparable(), variants)
def test_equals_the_published_form_near_the_border_of_the_cone(pair, variant):
    assert_equals_the_published(*pair, variant)


@TIGHT
@given(st.one_of(pairs(), comparable()), variants, weights, weights)
def test_conflicts_with_neither(pair, variant, w_f, w_r):
    f, r = pair
    a, b = LossWeighted(DualConeWeighting(variant), w_f, w_r)(gram(f, r))
    assert a > 0
    assert b > 0
    fm, rm = paper.vector(f), paper.vector(r)
    g = paper.combined(a, fm, b, rm)
    for other in (fm, rm):
        assert paper.dot(g, other) >= -1e-7 * paper.norm(g) * paper.norm(other)


@TIGHT
@given(pairs(), variants, weights, weights)
def test_exchanging_the_roles_exchanges_the_weights(pair, variant, w_f, w_r):
    ff, rr, fr = gram(*pair)
    one = dual_cone_weights(ff, rr, fr, variant, forget_weight=w_f, retain_weight=w_r)
    other = dual_cone_weights(rr, ff, fr, variant, forget_weight=w_r, retain_weight=w_f)
    assert one == pytest.approx((other.retain, other.forget), rel=1e-14)


@TIGHT
@given(pairs(least_sine=1e-3), weights, weights)
def test_center_is_the_direction_of_the_pivot_half_way(pair, w_f, w_r):
    a, b = LossWeighted(DualConeWeighting("center"), w_f, w_r)(gram(*pair))
    c, d = pivot_weights(*gram(*pair), 0.5)
    assert a * d == pytest.approx(b * c, rel=1e-9)
    assert a * np.linalg.norm(pair[0]) == pytest.approx(b * np.linalg.norm(pair[1]), rel=1e-9)


@TIGHT
@given(pairs(least_sine=1e-3))
def test_center_has_the_length_of_the_projection(pair):
    f, r = pair
    a, b = DualConeWeighting()(gram(f, r))
    middle = f / np.linalg.norm(f) + r / np.linalg.norm(r)
    projected = (f + r) @ middle / np.linalg.norm(middle)
    assert np.linalg.norm(a * f + b * r) == pytest.approx(projected, rel=1e-6)


@TIGHT
@given(comparable(least_sine=1e-2))
def test_center_is_config(pair):
    """ConFIG (Liu, Chu & Thuerey, 2024) for two losses."""
    aggregation = pytest.importorskip("torchjd.aggregation")
    f, r = pair
    a, b = DualConeWeighting()(gram(f, r))
    theirs = aggregation.ConFIG()(torch.tensor(np.stack([f, r]))).numpy()
    np.testing.assert_allclose(a * f + b * r, theirs, rtol=1e-6, atol=1e-8)


@TIGHT
@given(st.one_of(pairs(), comparable()))
def test_avg_is_pcgrads_mean_outside_the_cone_and_the_sum_inside(pair):
    """So the two agree only where f + r itself conflicts: inside, PCGrad still operates and DCGD does not."""
    ff, rr, fr = gram(*pair)
    avg = DualConeWeighting("avg")(Gram(ff, rr, fr))
    if min(ff, rr) + fr < 0:
        assert avg == PCGradWeighting("mean")(Gram(ff, rr, fr))
    else:
        assert avg == (1, 1)


@TIGHT
@given(st.one_of(pairs(), comparable()))
def test_proj_is_orthogonal_to_the_gradient_it_would_hurt(pair):
    ff, rr, fr = gram(*pair)
    a, b = DualConeWeighting("proj")(Gram(ff, rr, fr))
    if fr >= -min(ff, rr):
        assert (a, b) == (1, 1)
    elif rr < ff:
        assert a == 1
        assert a * fr + b * rr == pytest.approx(0, abs=1e-12 * abs(fr))
    else:
        assert b == 1
        assert a * ff + b * fr == pytest.approx(0, abs=1e-12 * abs(fr))


@TIGHT
@given(pairs(least_sine=1e-10, most_sine=9e-7), variants, weights, weights)
def test_collinear_gradients_follow_the_stated_rule(pair, variant, w_f, w_r):
    f, r = pair
    a, b = dual_cone_weights(*gram(f, r), variant, forget_weight=w_f, retain_weight=w_r)
    if f @ r < 0:
        assert (a, b) == (0, 0)
    else:
        np.testing.assert_allclose(
            a * f + b * r, w_f * f + w_r * r, rtol=0, atol=2e-6 * np.linalg.norm(w_f * f + w_r * r)
        )


@given(st.floats(1e-24, 1e24), variants)
def test_vanishing_gradients(square, variant):
    assert dual_cone_weights(0, square, 0, variant, retain_weight=3) == (0, 3)
    assert dual_cone_weights(square, 0, 0, variant, forget_weight=2) == (2, 0)
    assert dual_cone_weights(square, square, -square / 2, variant, forget_weight=0) == (0, 1)
    assert dual_cone_weights(0, 0, 0, variant) == (0, 0)


def test_bad_input_is_an_error():
    with pytest.raises(NonFiniteError, match="not finite"):
        dual_cone_weights(1, math.inf, 0)
    with pytest.raises(GradPivotError, match="not the inner products"):
        dual_cone_weights(1, 1, -2)
    with pytest.raises(GradPivotError, match="choose one of center, avg, proj"):
        DualConeWeighting("centre")
    with pytest.raises(GradPivotError, match="retain weight is nan"):
        LossWeighted(DualConeWeighting(), 1.0, math.nan)
