from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradpivot import CUP, DCGD, WS, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry.dual_cone import DualConeWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.weighting import LossWeighted
from gradpivot.tasks.objectives import list_objectives, objective
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained
from outcomes import forget_cross_entropy

VARIANTS = ("center", "avg", "proj")


class TestDCGD(MethodContract):
    method = DCGD(lr=0.02, epochs=10)


def recorded_grams(history):
    for f, r, cosine in zip(*(history[c] for c in ("forget_norm", "retain_norm", "cosine")), strict=True):
        yield Gram(f * f, r * r, f * r * cosine)


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_steps_are_the_variants(variant):
    method = DCGD(variant=variant, forget_weight=2.0, retain_weight=0.5, max_norm=None, epochs=3)
    history = TestDCGD().run(method).history
    rule = LossWeighted(DualConeWeighting(variant), 2.0, 0.5)
    for gram, a, b in zip(recorded_grams(history), history["forget_weight"], history["retain_weight"], strict=True):
        assert (a, b) == pytest.approx(rule(gram), rel=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.numeric
def test_every_step_descends_both_losses_before_momentum(variant):
    history = TestDCGD().run(DCGD(variant=variant, momentum=0.0, lr=0.01, epochs=3)).history
    assert all(d <= 1e-9 for d in history["delta_forget"] + history["delta_retain"])


def test_center_walks_the_pivots_middle():
    """Both shortened to the same length they are the same run."""
    shared = {"lr": 0.01, "epochs": 2, "max_norm": 1e-3}
    mine, theirs = (
        TestDCGD().run(DCGD(**shared)),
        TestDCGD().run(CUP(gamma=0.5, dial="angle", momentum=0.9, **shared)),
    )
    for a, b in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("objective", [name for name in list_objectives() if objective(name).takes == "logits"])
@pytest.mark.numeric
def test_takes_any_objective(objective, variant):
    result = TestDCGD().run(DCGD(objective=objective, variant=variant, lr=0.02, epochs=2))
    assert result.diverged is None
    assert forget_cross_entropy(result.model) > forget_cross_entropy(trained())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_forget_gradient_that_is_exactly_zero_is_no_crash(variant):
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = -1e4
    result = unlearn(model, ForgetSplit.by_class(blobs(), blobs(seed=1), 0), DCGD(variant=variant, epochs=1))
    assert set(result.history["forget_weight"]) == {0.0}
    assert result.scores.ua == 1.0


def test_settings():
    with pytest.raises(GradPivotError, match="choose one of center, avg, proj"):
        DCGD(variant="centre")
    assert DCGD.paper_space == WS.paper_space
    assert replace(DCGD(), variant="avg").label == "DCGD(forget_weight=1.0, variant=avg)"
