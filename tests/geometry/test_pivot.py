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
from gradpivot.geometry.pivot import Case, PivotWeighting, case_of, pivot_weights, steered_weights
from gradpivot.geometry.weighting import Weights

sys.path.insert(0, str(Path(__file__).parent))
import paper_formulas as paper
from strategies import gammas, pairs, weights

TIGHT = settings(max_examples=150, deadline=None)


def gram(f: np.ndarray, r: np.ndarray) -> Gram:
    return Gram(float(f @ f), float(r @ r), float(f @ r))


def direction(f: np.ndarray, r: np.ndarray, gamma: float, **lengths: float) -> np.ndarray:
    a, b = pivot_weights(*gram(f, r), gamma, **lengths)
    return a * f + b * r


def exact(f: np.ndarray, r: np.ndarray, a: float, b: float) -> list[mpf]:
    """a·f + b·r in 50 digits, so that the test measures the weights and not its own rounding."""
    return paper.combined(a, paper.vector(f), b, paper.vector(r))


def angle(u: np.ndarray, v: np.ndarray) -> float:
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return 2 * math.atan2(float(np.linalg.norm(u - v)), float(np.linalg.norm(u + v)))


@TIGHT
@given(pairs(), gammas, weights, weights)
def test_equals_the_papers_formulas_in_fifty_digits(pair, gamma, w_f, w_r):
    f, r = pair
    a, b = pivot_weights(*gram(f, r), gamma, forget_weight=w_f, retain_weight=w_r)
    expected = paper.cup_gradient(paper.vector(f), paper.vector(r), gamma, w_f, w_r)
    error = paper.norm(paper.combined(1, exact(f, r, a, b), -1, expected)) / paper.norm(expected)
    assert error <= 1e-6


@TIGHT
@given(pairs(), gammas)
def test_each_weight_equals_the_papers(pair, gamma):
    """The closed form of the specification: b = ‖T‖cos(γφ)√(F/D), a = ‖T‖sin(γφ)/√F − bC/F."""
    f, r = pair
    fm, rm = paper.vector(f), paper.vector(r)
    F, R, C = paper.dot(fm, fm), paper.dot(rm, rm), paper.dot(fm, rm)
    T, fid, eff = paper.anchors(fm, rm)
    turn = mpf(gamma) * paper.phi(fid, eff)
    length = paper.norm(T)
    b = length * paper.mp.cos(turn) * paper.mp.sqrt(F / (F * R - C * C))
    a = length * paper.mp.sin(turn) / paper.mp.sqrt(F) - b * C / F
    got_a, got_b = pivot_weights(*gram(f, r), gamma)
    # A weight may cross zero, so errors are relative to the largest it can be.
    largest = length / paper.mp.sqrt(1 - C * C / F / R)
    assert abs(got_a - a) * paper.mp.sqrt(F) <= 1e-6 * largest
    assert abs(got_b - b) * paper.mp.sqrt(R) <= 1e-6 * largest


@TIGHT
@given(pairs(least_sine=1e-3), gammas, weights, weights)
def test_direction_does_not_depend_on_the_loss_weights(pair, gamma, w_f, w_r):
    f, r = pair
    a, b = pivot_weights(*gram(f, r), gamma)
    c, d = pivot_weights(*gram(f, r), gamma, forget_weight=w_f, retain_weight=w_r)
    assert a * d == pytest.approx(b * c, rel=1e-9, abs=1e-9 * (abs(a * d) + abs(b * c)))


@TIGHT
@given(pairs(), gammas, weights, weights)
def test_length_is_that_of_the_total_gradient(pair, gamma, w_f, w_r):
    f, r = pair
    a, b = pivot_weights(*gram(f, r), gamma, forget_weight=w_f, retain_weight=w_r)
    total = exact(f, r, w_f, w_r)
    assert abs(paper.norm(exact(f, r, a, b)) / paper.norm(total) - 1) < 1e-6


@TIGHT
@given(pairs())
def test_phi_is_pi_minus_alpha(pair):
    f, r = paper.vector(pair[0]), paper.vector(pair[1])
    _, fid, eff = paper.anchors(f, r)
    alpha = paper.mp.acos(paper.dot(f, r) / paper.norm(f) / paper.norm(r))
    assert abs(paper.phi(fid, eff) - (paper.mp.pi - alpha)) < mpf(10) ** -20


@TIGHT
@given(pairs(least_sine=1e-3), gammas)
def test_cosines_with_both_gradients(pair, gamma):
    f, r = pair
    g = direction(f, r, gamma)
    alpha = angle(f, r)
    phi = math.pi - alpha
    unit = g / np.linalg.norm(g)
    assert unit @ (f / np.linalg.norm(f)) == pytest.approx(math.sin(gamma * phi), abs=1e-6)
    assert unit @ (r / np.linalg.norm(r)) == pytest.approx(math.sin(gamma * phi + alpha), abs=1e-6)


@TIGHT
@given(pairs(), gammas)
def test_conflicts_with_neither(pair, gamma):
    f, r = pair
    a, b = pivot_weights(*gram(f, r), gamma)
    g, fm, rm = exact(f, r, a, b), paper.vector(f), paper.vector(r)
    for other in (fm, rm):
        assert paper.dot(g, other) >= -1e-7 * paper.norm(g) * paper.norm(other)


@TIGHT
@given(pairs(least_sine=1e-3))
def test_ends_are_orthogonal_to_one_gradient(pair):
    f, r = pair
    for gamma, other in ((0.0, f), (1.0, r)):
        g = direction(f, r, gamma)
        assert abs(g @ other) <= 1e-6 * np.linalg.norm(g) * np.linalg.norm(other)


@TIGHT
@given(pairs(least_sine=1e-3))
def test_half_way_bisects_the_gradients(pair):
    """γ=½ is the direction of f/‖f‖ + r/‖r‖: DCGD-center and the two-task Nash bargaining solution."""
    f, r = pair
    a, b = pivot_weights(*gram(f, r), 0.5)
    assert a * np.linalg.norm(f) == pytest.approx(b * np.linalg.norm(r), rel=1e-9)
    assert a > 0


@TIGHT
@given(pairs(), gammas)
def test_exchanging_the_roles_reverses_the_knob(pair, gamma):
    f, r = pair
    ff, rr, fr = gram(f, r)
    a, b = pivot_weights(ff, rr, fr, gamma)
    b_exchanged, a_exchanged = pivot_weights(rr, ff, fr, 1 - gamma)
    largest = max(abs(a) * math.sqrt(ff), abs(b) * math.sqrt(rr))
    assert abs(a - a_exchanged) * math.sqrt(ff) <= 1e-6 * largest
    assert abs(b - b_exchanged) * math.sqrt(rr) <= 1e-6 * largest


@TIGHT
@given(pairs(least_sine=1e-3))
def test_pull_on_the_forget_loss_peaks_at_a_quarter_turn(pair):
    f, r = pair
    phi = math.pi - angle(f, r)
    pulls = {g: direction(f, r, g) @ f / np.linalg.norm(direction(f, r, g)) for g in np.linspace(0, 1, 41)}
    best = max(pulls, key=pulls.__getitem__)
    assert abs(best - min(1.0, math.pi / (2 * phi))) <= 1 / 40 + 1e-9


@TIGHT
@given(pairs(least_sine=1e-10, most_sine=9e-7), gammas, weights, weights)
def test_collinear_gradients_follow_the_stated_rule(pair, gamma, w_f, w_r):
    f, r = pair
    weights = pivot_weights(*gram(f, r), gamma, forget_weight=w_f, retain_weight=w_r)
    if f @ r > 0:
        assert weights == (w_f, w_r)
        assert case_of(gram(f, r)) is Case.PARALLEL
    else:
        assert weights == (0, 0)
        assert case_of(gram(f, r)) is Case.OPPOSED
        assert case_of(gram(f, r)).is_stationary


@given(gammas, st.floats(1e-24, 1e24))
def test_vanishing_gradients(gamma, square):
    assert pivot_weights(0, square, 0, gamma, retain_weight=3) == (0, 3)
    assert pivot_weights(square, 0, 0, gamma, forget_weight=2) == (2, 0)
    assert pivot_weights(0, 0, 0, gamma) == (0, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_non_finite_numbers_are_an_error(bad, place):
    numbers = [1.0, 1.0, -0.5]
    numbers[place] = bad
    with pytest.raises(NonFiniteError, match="not finite"):
        pivot_weights(*numbers, 0.5)


@pytest.mark.parametrize("numbers", [(-1, 1, 0), (1, -1, 0), (1, 1, 1.1), (1, 1, -1.1), (0, 1, 0.5)])
def test_numbers_that_are_no_gram_matrix_are_an_error(numbers):
    with pytest.raises(GradPivotError, match="not the inner products"):
        pivot_weights(*numbers, 0.5)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, math.nan])
def test_gamma_outside_its_range_is_an_error(gamma):
    with pytest.raises(GradPivotError, match="between 0"):
        pivot_weights(1, 1, 0, gamma)
    with pytest.raises(GradPivotError, match="between 0"):
        PivotWeighting(gamma)


def test_no_epsilon_spoils_small_gradients():
    """With ε=1e-6 on squared norms the step *hurts* the retain loss at norm 1e-3: cos(g, r) = −0.95."""
    r = np.array([1.0, 0.0]) * 1e-3
    f = np.array([-0.995, math.sqrt(1 - 0.995**2)]) * 1e-3
    for gamma in np.linspace(0, 1, 11):
        g = direction(f, r, gamma)
        assert g @ r >= -1e-12 * np.linalg.norm(g) * np.linalg.norm(r)


class Quadratics:
    """Two convex quadratics in six dimensions with minima at p (forget) and q (retain)."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.A, self.B = (m @ m.T / 6 + 0.5 * np.eye(6) for m in rng.standard_normal((2, 6, 6)))
        self.p, self.q = rng.standard_normal(6), -rng.standard_normal(6)
        self.between = (self.p + self.q) / 2 + 0.5 * rng.standard_normal(6)
        self.outside = 3 * rng.standard_normal(6)

    def losses(self, x: np.ndarray) -> np.ndarray:
        return np.array([(x - self.p) @ self.A @ (x - self.p), (x - self.q) @ self.B @ (x - self.q)]) / 2

    def gradients(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.A @ (x - self.p), self.B @ (x - self.q)

    def descend(self, x: np.ndarray, gamma: float, steps: int = 10_000) -> np.ndarray:
        for k in range(steps):
            f, r = self.gradients(x)
            a, b = pivot_weights(*gram(f, r), gamma)
            # "Sufficiently small" has to mean square-summable: ‖T‖ does not vanish at a Pareto-stationary point,
            # and at γ=0 and γ=1 the second-order term raises the loss whose inner product is zero.
            x = x - 0.05 / (1 + k / 50) * (a * f + b * r)
        return x


@pytest.mark.parametrize("seed", [1, 5])
def test_theorem_iterates_of_every_gamma_end_pareto_stationary(seed):
    """Theorem 1; and along the way γ orders the two losses at the end."""
    problem = Quadratics(seed)
    grid = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    ends = [problem.descend(problem.between, gamma) for gamma in grid]
    for end in ends:
        assert _distance_from_stationary(*problem.gradients(end)) < 1e-3
    forget, retain = np.array([problem.losses(end) for end in ends]).T
    assert (np.diff(forget) < 0).all()
    assert (np.diff(retain) > 0).all()


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_theorem_holds_from_far_outside_for_inner_gammas(gamma):
    problem = Quadratics(1)
    end = problem.descend(problem.outside, gamma)
    assert _distance_from_stationary(*problem.gradients(end)) < 1e-3
    assert (problem.losses(end) < problem.losses(problem.outside)).all()


def test_theorem_fails_at_the_ends_of_the_knob_from_outside():
    """A counter-example to the theorem as printed (docs/paper-notes.md): γ=0 walks along a level set of L_f and stops
    where r is *parallel* to f, although a step along either would lower both losses."""
    problem = Quadratics(1)
    f, r = problem.gradients(problem.descend(problem.outside, 0.0))
    assert gram(f, r).cosine > 0.999
    assert _distance_from_stationary(f, r) > 0.1


def _distance_from_stationary(f: np.ndarray, r: np.ndarray) -> float:
    """min ‖t·f + (1−t)·r‖ over t in [0, 1], relative; zero exactly where the point is Pareto-stationary."""
    t = np.clip((r - f) @ r / ((r - f) @ (r - f)), 0, 1)
    return float(np.linalg.norm(t * f + (1 - t) * r) / max(np.linalg.norm(f), np.linalg.norm(r)))


def angled(alpha: float, forget: float = 1.0, retain: float = 1.0) -> Gram:
    return Gram(forget**2, retain**2, forget * retain * math.cos(alpha))


def pulls(gram: Gram, weights: Weights) -> tuple[float, float]:
    """⟨g,f⟩ and ⟨g,r⟩."""
    a, b = weights
    return a * gram.ff + b * gram.fr, a * gram.fr + b * gram.rr


angles = st.floats(0.01, math.pi - 0.01)
lengths = st.floats(1e-4, 1e4)


@given(angles, lengths, lengths, st.floats(0, 1))
def test_steered_is_conflict_free_and_the_projection_of_the_sum(alpha, forget, retain, intensity):
    gram = angled(alpha, forget, retain)
    weights = steered_weights(gram, intensity)
    on_forget, on_retain = pulls(gram, weights)
    size = gram.norm_of(*weights)
    assert on_forget >= -1e-6 * size * forget
    assert on_retain >= -1e-6 * size * retain
    # ⟨T,g⟩ = ‖g‖² says that g is T's projection on its direction.
    assert on_forget + on_retain == pytest.approx(size**2, rel=1e-5, abs=1e-9 * (forget + retain) ** 2)


@given(angles, lengths, lengths, st.floats(0, 1), st.floats(0, 1))
def test_more_intensity_never_pulls_less_on_what_is_forgotten(alpha, forget, retain, one, other):
    gram = angled(alpha, forget, retain)
    cosines = []
    for intensity in sorted((one, other)):
        weights = steered_weights(gram, intensity)
        size = gram.norm_of(*weights)
        cosines.append(pulls(gram, weights)[0] / (size * forget) if size else 0.0)
    assert cosines[0] <= cosines[1] + 1e-5


@given(angles, lengths, lengths, st.floats(-1, -0.001))
def test_giving_back_raises_what_is_forgotten_and_spares_what_is_kept(alpha, forget, retain, intensity):
    gram = angled(alpha, forget, retain)
    weights = steered_weights(gram, intensity)
    on_forget, on_retain = pulls(gram, weights)
    size = gram.norm_of(*weights)
    assert on_forget <= 1e-6 * size * forget
    assert on_retain >= -1e-6 * size * retain


def test_holding_stops_where_there_is_nothing_left_to_repair():
    conflicting = angled(math.pi - 1e-3, 1.0, 1e-3)
    assert conflicting.norm_of(*steered_weights(conflicting, 0.0)) < 2e-6
    assert conflicting.norm_of(*pivot_weights(*conflicting, 0.0)) > 0.99


@pytest.mark.parametrize(
    ("gram", "intensity", "expected"),
    [
        (Gram(0.0, 1.0, 0.0), 0.5, (0, 1)),
        (Gram(1.0, 0.0, 0.0), 0.5, (1, 0)),
        (Gram(1.0, 0.0, 0.0), 0.0, (0, 0)),
        (Gram(1.0, 1.0, 1.0), 0.5, (1, 1)),
        (Gram(1.0, 1.0, 1.0), 0.0, (0, 0)),
        (Gram(1.0, 1.0, -1.0), 0.5, (0, 0)),
        (Gram(0.0, 0.0, 0.0), 0.5, (0, 0)),
    ],
)
def test_steered_degenerate_cases(gram, intensity, expected):
    assert tuple(steered_weights(gram, intensity)) == expected


@pytest.mark.parametrize("intensity", [-1.5, 1.01, math.nan])
def test_an_intensity_outside_its_range_says_so(intensity):
    with pytest.raises(GradPivotError, match="between -1"):
        steered_weights(angled(2.0), intensity)
