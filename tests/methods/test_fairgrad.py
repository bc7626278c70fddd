from __future__ import annotations

import sys

import pytest
import torch

from gradpivot import WS, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry.fairgrad import FairWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.methods.fairgrad import FairGrad
from gradpivot.methods.registry import make_method, method_class
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestFairGrad(MethodContract):
    method = FairGrad(lr=0.1, epochs=10)


def test_its_steps_are_fair_to_the_weighted_losses():
    """G w = w^(−1/α) at every step, with G of w_f·f and r and (a, b) = (w_f·w₁, w₂)."""
    history = TestFairGrad().run(FairGrad(forget_weight=0.5, lr=0.01, max_norm=None, epochs=2)).history
    columns = ("forget_norm", "retain_norm", "cosine", "forget_weight", "retain_weight")
    for f, r, cosine, a, b in zip(*(history[c] for c in columns), strict=True):
        expected = FairWeighting(2.0)(Gram(0.25 * f * f, r * r, 0.5 * f * r * cosine))
        assert (a / 0.5, b) == pytest.approx(expected, rel=1e-6)


def test_is_a_method_like_the_others():
    assert method_class("fairgrad") is FairGrad
    assert make_method(FairGrad(alpha=3).to_dict()) == FairGrad(alpha=3)
    assert FairGrad.paper_space == WS.paper_space
    assert FairGrad.knob == "forget_weight"
    assert FairGrad.protocol("paper").objective == "negative_ce"


def test_needs_no_torchjd(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    FairGrad().check_installed()
    assert TestFairGrad().run(FairGrad(epochs=1)).diverged is None


def test_a_forget_gradient_that_is_exactly_zero_is_no_crash():
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = -1e4
    result = unlearn(model, ForgetSplit.by_class(blobs(), blobs(seed=1), 0), FairGrad(epochs=1))
    assert result.diverged is None


def test_alpha_is_checked():
    with pytest.raises(GradPivotError, match="alpha is 0"):
        FairGrad(alpha=0)
