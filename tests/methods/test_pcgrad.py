from __future__ import annotations

import pytest

from gradpivot import WS, PCGrad
from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import trained
from outcomes import forget_cross_entropy


class TestPCGrad(MethodContract):
    method = PCGrad(lr=0.02, epochs=10)


def test_its_steps_are_the_surgery():
    """Recomputed from the recorded norms and angle, by the formula and not by our weighting."""
    method = PCGrad.protocol("paper", forget_weight=0.5, batch_size=8, batchnorm="frozen", lr=3e-3, epochs=10)
    history = TestPCGrad().run(method).history
    columns = ("forget_norm", "retain_norm", "cosine", "forget_weight", "retain_weight")
    assert any(history["conflict"])
    for f, r, cosine, a, b in zip(*(history[c] for c in columns), strict=True):
        f = 0.5 * f
        surgery = max(0.0, -cosine)
        assert a == pytest.approx(0.5 * (1 + surgery * r / f), rel=1e-9)
        assert b == pytest.approx(1 + surgery * f / r, rel=1e-9)


@pytest.mark.numeric
def test_every_step_descends_both_losses_before_momentum():
    history = TestPCGrad().run(PCGrad(momentum=0.0, lr=0.01, epochs=3)).history
    assert all(d <= 1e-9 for d in history["delta_forget"] + history["delta_retain"])


@pytest.mark.numeric
def test_mean_is_the_sum_at_half_the_rate():
    shared = {"max_norm": None, "momentum": 0.0, "epochs": 2}
    whole = TestPCGrad().run(PCGrad(lr=0.01, **shared)).history
    half = TestPCGrad().run(PCGrad(lr=0.02, reduction="mean", **shared)).history
    assert half["forget_loss"] == pytest.approx(whole["forget_loss"], rel=1e-4)
    assert half["forget_weight"] == pytest.approx([w / 2 for w in whole["forget_weight"]], rel=1e-3)


@pytest.mark.parametrize("objective", ["unlikelihood", "negative_ce"])
@pytest.mark.numeric
def test_takes_any_objective(objective):
    result = TestPCGrad().run(PCGrad(objective=objective, lr=0.02, epochs=2))
    assert result.diverged is None
    assert forget_cross_entropy(result.model) > forget_cross_entropy(trained())


def test_paper_space_is_that_of_ws():
    assert len(PCGrad.space()) == 20
    assert PCGrad.paper_space == WS.paper_space
    assert PCGrad.protocol("paper").objective == "negative_ce"


def test_settings_are_checked():
    with pytest.raises(GradPivotError, match="choose one of sum, mean"):
        PCGrad(reduction="median")
    with pytest.raises(GradPivotError, match="retain_weight is -1"):
        PCGrad(retain_weight=-1)
    assert PCGrad().weighting()(Gram(4.0, 1.0, -1.5)) == pytest.approx((1.375, 2.5))
