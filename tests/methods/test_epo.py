from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from gradpivot import EPO, STCH, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry import Gram
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained

norms = st.floats(0.05, 20)
cosines = st.floats(-0.99, 0.99)
losses = st.floats(0.01, 10)
preferences = st.floats(0.05, 0.95)


class TestEPO(MethodContract):
    method = EPO(lr=0.1, epochs=10)


class TestEPOOfPrintedSettings(MethodContract):
    method = EPO.protocol("paper", lr=0.05, epochs=15, batch_size=8)


def divergence(method: EPO, forget: float, retain: float) -> float:
    """Non-uniformity of the weighted losses: KL to (½, ½)."""
    weighted = method.preference * forget, (1 - method.preference) * retain
    return sum(x / sum(weighted) * math.log(2 * x / sum(weighted)) for x in weighted)


def drops(gram: Gram, weights: tuple[float, float]) -> tuple[float, float]:
    """What a step along a·f + b·r takes from each loss, to first order."""
    a, b = weights
    return a * gram.ff + b * gram.fr, a * gram.fr + b * gram.rr


@given(norms, norms, cosines, losses, losses, preferences)
@settings(deadline=None)
def test_the_promises_of_a_step(f, r, cosine, forget, retain, preference):
    """The larger weighted loss never rises; at the ratio neither does."""
    method = EPO(preference=preference)
    gram = Gram(f * f, r * r, f * r * cosine)
    a, b = method.weights(gram, forget, retain)
    assert a >= 0
    assert b >= 0
    assert a + b == pytest.approx(1)
    of_f, of_r = drops(gram, (a, b))
    slack = 1e-9 * max(gram.ff, gram.rr)
    if preference * forget > (1 - preference) * retain:
        assert of_f >= -slack
    else:
        assert of_r >= -slack
    if divergence(method, forget, retain) <= method.tolerance:
        assert min(of_f, of_r) >= -slack


@given(norms, norms, cosines, losses, losses, preferences)
@settings(deadline=None, max_examples=60)
def test_it_solves_the_papers_linear_program(f, r, cosine, forget, retain, preference):
    """Mahapatra & Rajan (2020), eq. 24, solved by scipy; both have the same value."""
    method = EPO(preference=preference)
    C = [[f * f, f * r * cosine], [f * r * cosine, r * r]]
    ratio = preference, 1 - preference
    weighted = ratio[0] * forget, ratio[1] * retain
    uniform = divergence(method, forget, retain)
    anchor = [w * (math.log(2 * x / sum(weighted)) - uniform) for w, x in zip(ratio, weighted, strict=True)]
    anchor = [part / sum(map(abs, anchor)) for part in anchor] if uniform > method.tolerance else [1.0, 1.0]
    value = [sum(c * part for c, part in zip(row, anchor, strict=True)) for row in C]
    worst = int(weighted[1] >= weighted[0])
    least = [0.0, 0.0]
    if uniform > method.tolerance:
        least[1 - worst] = -math.inf if value[1 - worst] > 0 else value[1 - worst] * (value[worst] > 0)
    rows = [j for j in (0, 1) if math.isfinite(least[j])]
    solved = linprog(
        [-v for v in value], A_ub=[[-c for c in C[j]] for j in rows], b_ub=[-least[j] for j in rows],
        A_eq=[[1, 1]], b_eq=[1], bounds=[(0, 1)] * 2,
    )  # fmt: skip
    if not solved.success:
        return  # the constraints contradict each other, and only the promise above holds
    ours = method.weights(Gram(C[0][0], C[1][1], C[0][1]), forget, retain)
    reached = sum(v * weight for v, weight in zip(value, ours, strict=True))
    assert reached == pytest.approx(-solved.fun, rel=1e-6, abs=1e-6 * max(f * f, r * r))


@pytest.mark.parametrize("cosine", [-0.9, -0.5, -0.1, 0.0])
@pytest.mark.parametrize(("forget", "retain"), [(3.0, 0.1), (0.1, 3.0), (1.0, 0.5)])
def test_under_conflict_a_step_brings_the_losses_closer_to_the_ratio(cosine, forget, retain):
    method = EPO(preference=0.5)
    gram = Gram(1.0, 1.0, cosine)
    of_f, of_r = drops(gram, method.weights(gram, forget, retain))
    step = 1e-4
    assert divergence(method, forget - step * of_f, retain - step * of_r) < divergence(method, forget, retain)


def test_roles_are_symmetric():
    gram, swapped = Gram(2.0, 0.5, -0.4), Gram(0.5, 2.0, -0.4)
    a, b = EPO(preference=0.3).weights(gram, 2.0, 0.3)
    assert EPO(preference=0.7).weights(swapped, 0.3, 2.0) == pytest.approx((b, a))


def test_losses_of_zero():
    for pair in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0)):
        assert all(map(math.isfinite, EPO().weights(Gram(1.0, 1.0, -0.5), *pair)))


@pytest.mark.parametrize("gram", [Gram(0.0, 1.0, 0.0), Gram(1.0, 0.0, 0.0), Gram(1.0, 1.0, -1.0), Gram(0.0, 0.0, 0.0)])
def test_degenerate_gradients(gram):
    a, b = EPO().weights(gram, 1.0, 1.0)
    assert a + b == pytest.approx(1)
    assert min(drops(gram, (a, b))) >= -1e-12


def test_the_weights_reach_the_step():
    method = EPO(preference=0.3, max_norm=None, epochs=2)
    history = TestEPO().run(method).history
    for forget, retain in zip(history["forget_weight"], history["retain_weight"], strict=True):
        assert forget + retain == pytest.approx(1)


@pytest.mark.numeric
@pytest.mark.parametrize("preference", [0.1, 0.5, 0.9])
def test_the_losses_end_near_the_preferred_ratio(preference):
    """Where they conflict; the ratios differ by a factor of 81, and batches measure them roughly."""
    split = ForgetSplit.random(blobs(), blobs(seed=1), 0.3)
    history = unlearn(trained(), split, EPO(preference=preference, lr=0.05, epochs=10)).history
    forget, retain = (sum(history[name][-20:]) for name in ("forget_loss", "retain_loss"))
    assert 1 / 4 < preference * forget / ((1 - preference) * retain) < 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"preference": 0}, "preference is 0"),
        ({"preference": 1}, "preference is 1"),
        ({"tolerance": 0}, "tolerance is 0"),
        ({"objective": "negative_ce"}, "the objective negative_ce can be negative; use unlikelihood"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        EPO(**wrong)


def test_its_search_is_as_long_as_that_of_stch():
    assert len(EPO.space()) == len(STCH.space())
