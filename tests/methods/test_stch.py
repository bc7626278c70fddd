from __future__ import annotations

import math

import pytest
import torch

from gradpivot import STCH, WS, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry import Gram
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained

LOSSES = [(3.0, 0.2), (0.1, 2.0), (0.7, 0.7), (0.0, 0.0), (40.0, 1e-6)]
GRAM = Gram(1.0, 1.0, 0.0)
"""The weights do not depend on it."""


class TestSTCH(MethodContract):
    method = STCH(lr=0.1, epochs=10)


class TestSTCHOfPrintedSettings(MethodContract):
    method = STCH.protocol("paper", lr=0.05, epochs=15, batch_size=8)


def derivative(method: STCH, losses: tuple[float, float], ideals: tuple[float, float]) -> list[float]:
    """∂/∂L of μ·log Σ exp(w_i(L_i − z_i)/μ), by autograd in float64."""
    L = torch.tensor(losses, dtype=torch.float64, requires_grad=True)
    w = torch.tensor([method.preference, 1 - method.preference], dtype=torch.float64)
    z = torch.tensor(ideals, dtype=torch.float64)
    value = method.smoothing * torch.logsumexp(w * (L - z) / method.smoothing, 0)
    return torch.autograd.grad(value, L)[0].tolist()


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize(("preference", "smoothing"), [(0.5, 0.1), (0.2, 1.0), (0.9, 5.0), (0.01, 0.01)])
def test_the_weights_are_the_derivative_of_the_scalarisation(losses, preference, smoothing):
    for ideals in ((0.0, 0.0), (-0.3, 0.1)):
        method = STCH(preference=preference, smoothing=smoothing, forget_ideal=ideals[0], retain_ideal=ideals[1])
        assert method.weights(GRAM, *losses) == pytest.approx(derivative(method, losses, ideals), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("losses", LOSSES[:3])
def test_without_smoothing_only_the_worse_loss_counts(losses):
    """μ → 0 is the Tchebycheff scalarisation max_i w_i(L_i − z_i)."""
    method = STCH(preference=0.6, smoothing=1e-6)
    forget, retain = 0.6 * losses[0], 0.4 * losses[1]
    assert method.weights(GRAM, *losses) == ((0.6, 0.0) if forget > retain else (0.0, 0.4))


@pytest.mark.parametrize("losses", LOSSES)
def test_much_smoothing_is_a_weighted_sum(losses):
    """μ → ∞ with equal preference has WS's direction; w_i/2 in general."""
    forget, retain = STCH(smoothing=1e9).weights(GRAM, *losses)
    assert forget == pytest.approx(retain) == pytest.approx(0.25)
    assert STCH(preference=0.2, smoothing=1e9).weights(GRAM, *losses) == pytest.approx((0.1, 0.4))


def test_balanced_losses_share_by_preference():
    """Where w_f·L_f = w_r·L_r both have half the softmax."""
    assert STCH(preference=0.2).weights(GRAM, 0.8, 0.2) == pytest.approx((0.1, 0.4))


def test_extreme_losses_do_not_overflow():
    for losses in ((1e30, 0.0), (0.0, 1e30), (1e30, 1e30)):
        assert all(math.isfinite(weight) for weight in STCH(smoothing=1e-12).weights(GRAM, *losses))


def test_the_weights_reach_the_step():
    method = STCH(preference=0.3, max_norm=None, epochs=2)
    history = TestSTCH().run(method).history
    columns = ("forget_loss", "retain_loss", "forget_weight", "retain_weight")
    for forget, retain, a, b in zip(*(history[c] for c in columns), strict=True):
        assert (a, b) == pytest.approx(derivative(method, (forget, retain), (0.0, 0.0)))


@pytest.mark.numeric
def test_the_preference_orders_the_losses():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    ends = [unlearn(trained(), split, STCH(preference=w, lr=0.05, epochs=10)).history for w in (0.05, 0.95)]
    assert ends[0]["forget_loss"][-1] > ends[1]["forget_loss"][-1]


def test_the_ideal_is_the_objectives_bound():
    assert STCH(objective="negative_ce", forget_ideal=-10.0).weights(GRAM, -5.0, 0.0)[0] > 0.4
    with pytest.raises(GradPivotError, match="objective negative_ce has no lower bound; set forget_ideal or use"):
        STCH(objective="negative_ce")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"preference": 0}, "preference is 0"),
        ({"preference": 1}, "preference is 1"),
        ({"smoothing": 0}, "smoothing is 0"),
        ({"retain_ideal": float("nan")}, "retain_ideal is nan"),
        ({"forget_ideal": float("inf")}, "forget_ideal is inf"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        STCH(**wrong)


def test_its_search_is_as_long_as_that_of_ws():
    assert len(STCH.space()) == len(WS.space())
