from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from gradpivot.geometry._correction import correction
from gradpivot.geometry.gramian import Gram

numbers = st.floats(-3, 3).filter(lambda x: abs(x) > 1e-3)
vectors = st.lists(numbers, min_size=4, max_size=4).map(np.array)


def gram_of(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


def corrected(step: np.ndarray, f: np.ndarray, r: np.ndarray, **promised: bool) -> np.ndarray:
    x, y = correction(gram_of(f, r), float(step @ f), float(step @ r), **promised)
    return step + x * f + y * r


@given(vectors, vectors, vectors)
def test_neither_loss_rises_to_first_order(step, f, r):
    moved = corrected(step, f, r)
    sizes = np.linalg.norm(step) + 1
    gram = gram_of(f, r)
    if gram.ff * gram.rr - gram.fr**2 > 1e-6 * gram.ff * gram.rr:
        assert moved @ f <= 1e-6 * sizes * np.linalg.norm(f)
        assert moved @ r <= 1e-6 * sizes * np.linalg.norm(r)


@given(vectors, vectors, vectors)
def test_a_step_that_keeps_the_promise_is_left_alone(step, f, r):
    if step @ f <= 0 and step @ r <= 0:
        assert corrected(step, f, r).tolist() == step.tolist()


@given(vectors, vectors, vectors)
@settings(max_examples=30, deadline=None)
def test_it_is_the_nearest_such_step(step, f, r):
    """Against a general solver."""
    gram = gram_of(f, r)
    if gram.ff * gram.rr - gram.fr**2 < 0.05 * gram.ff * gram.rr:
        return
    solved = minimize(
        lambda v: ((v - step) ** 2).sum(),
        np.zeros(4),
        jac=lambda v: 2 * (v - step),
        constraints=[{"type": "ineq", "fun": lambda v, g=g: -(v @ g)} for g in (f, r)],
        method="SLSQP",
    ).x
    moved = corrected(step, f, r)
    assert np.linalg.norm(moved - step) <= np.linalg.norm(solved - step) + 1e-4


@given(vectors, vectors, vectors)
def test_what_is_not_promised_is_not_corrected(step, f, r):
    assert corrected(step, f, r, forget=False, retain=False).tolist() == step.tolist()
    only = corrected(step, f, r, forget=False)
    assert only @ r <= 1e-6 * (np.linalg.norm(step) + 1) * np.linalg.norm(r)


def test_vanishing_and_opposed_gradients():
    assert correction(Gram(0.0, 1.0, 0.0), 0.0, 2.0) == (0, -2)
    assert correction(Gram(1.0, 0.0, 0.0), 2.0, 0.0) == (-2, 0)
    f = np.array([1.0, 0.0])
    assert corrected(np.array([1.0, 1.0]), f, -f) == pytest.approx([0, 1])
