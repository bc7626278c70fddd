from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from gradpivot import WS, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry.dual_cone import DualConeWeighting
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pcgrad import PCGradWeighting
from gradpivot.methods.registry import make_method, method_class
from gradpivot.methods.torchjd import IMTLG, MGDA, AlignedMTL, CAGrad, DualProj, TorchJDDescent, UPGrad
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained
from outcomes import forget_cross_entropy

pytest.importorskip("torchjd.aggregation")
pytest.importorskip("quadprog")

FAMILY = [MGDA, CAGrad, AlignedMTL, UPGrad, DualProj, IMTLG]
RULES = {kind: kind().weighting() for kind in FAMILY}
family = pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.name)


class TestMGDA(MethodContract):
    method = MGDA(lr=0.3, epochs=10, retain_weight=5)
    least_ra = 0.75  # 0.86 was seen with another seed of the original


class TestUPGrad(MethodContract):
    method = UPGrad(lr=0.03, epochs=10)


def grams(f: float, r: float, angle: float) -> Gram:
    return Gram(f * f, r * r, f * r * math.cos(angle))


lengths = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)
angles = st.floats(1e-3, math.pi - 1e-3)
QUICK = settings(max_examples=40, deadline=None)


def run(method):
    return MethodContract().run(method)


@family
def test_its_steps_are_its_rules(kind):
    history = run(kind(forget_weight=0.5, lr=0.01, max_norm=None, epochs=2)).history
    rule = kind(forget_weight=0.5).weighting()
    columns = ("forget_norm", "retain_norm", "cosine", "forget_weight", "retain_weight")
    for f, r, cosine, a, b in zip(*(history[c] for c in columns), strict=True):
        assert (a, b) == pytest.approx(rule(Gram(f * f, r * r, f * r * cosine)), rel=1e-4)


@family
@pytest.mark.numeric
def test_repeats_resumes_and_forgets_a_little(kind, tmp_path):
    """The parts of the contract that a rule with a memory, or a solver with one, would break."""
    method = kind(lr=0.02, epochs=2)
    first, second = run(method), run(method)
    assert first.history == second.history
    assert forget_cross_entropy(first.model) > forget_cross_entropy(trained())

    def kill(done, total):
        if done == total // 2:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        MethodContract().run(method, progress=kill, checkpoint=checkpoint, checkpoint_seconds=0)
    resumed = MethodContract().run(method, checkpoint=checkpoint, checkpoint_seconds=0)
    assert resumed.history == first.history
    for a, b in zip(first.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@family
def test_is_a_method_like_the_others(kind):
    assert method_class(kind.name) is kind
    assert make_method(kind().to_dict()) == kind()
    assert kind.paper_space == WS.paper_space
    assert kind.knob == "forget_weight"
    assert kind.protocol("paper").objective == "negative_ce"


@family
@QUICK
@given(lengths, angles, st.floats(1e-2, 1e2))
def test_the_scale_of_both_gradients_is_taken_out(kind, length, angle, ratio):
    """TorchJD's own absolute constants would switch the rules off for short gradients."""
    rule = RULES[kind]
    expected = rule(grams(1.0, ratio, angle))
    assert rule(grams(length, length * ratio, angle)) == pytest.approx(expected, rel=1e-3, abs=1e-6)


@family
def test_degenerate_cases(kind):
    rule = RULES[kind]
    assert rule(Gram(0, 0, 0)) == (0, 0)
    assert rule(Gram(4, 1, -2)) == (0, 0)
    for gram in (Gram(0, 1, 0), Gram(1, 0, 0), Gram(4, 1, 2)):
        assert all(math.isfinite(w) and w >= 0 for w in rule(gram))


@family
def test_a_forget_gradient_that_is_exactly_zero_is_no_crash(kind):
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = -1e4
    result = unlearn(model, ForgetSplit.by_class(blobs(), blobs(seed=1), 0), kind(epochs=1))
    assert result.diverged is None


@QUICK
@given(lengths, lengths, angles)
def test_upgrad_is_pcgrads_mean(f, r, angle):
    gram = grams(f, r, angle)
    assert RULES[UPGrad](gram) == pytest.approx(PCGradWeighting("mean")(gram), rel=1e-9)


@QUICK
@given(lengths, lengths, angles)
def test_dualproj_is_half_of_dcgds_projection(f, r, angle):
    gram = grams(f, r, angle)
    assert RULES[DualProj](gram) == pytest.approx(DualConeWeighting("proj")(gram).scaled(0.5), rel=1e-9)


@QUICK
@given(lengths, angles, st.floats(1e-2, 1e2))
def test_imtl_g_is_the_dual_cones_center_with_weights_that_sum_to_one(length, angle, ratio):
    gram = grams(length, length * ratio, angle)
    center = DualConeWeighting("center")(gram)
    assert RULES[IMTLG](gram) == pytest.approx(center.scaled(1 / sum(center)), rel=1e-6)


@QUICK
@given(lengths, angles, st.floats(1e-4, 1e4))
def test_mgda_is_the_shortest_combination(length, angle, ratio):
    """The closed form for two: a = (R − C)/(F + R − 2C), inside [0, 1]."""
    ff, rr, fr = gram = grams(length, length * ratio, angle)
    a = min(1.0, max(0.0, (rr - fr) / (ff + rr - 2 * fr)))
    assert RULES[MGDA](gram) == pytest.approx((a, 1 - a), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("c", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("angle", [0.5, 1.6, 2.8])
def test_cagrad_maximises_the_smaller_gain_in_its_ball(angle, c):
    """Against a search over the border of the ball, in the plane of f and r."""
    f, r = np.array([1.0, 0.0]), 0.4 * np.array([math.cos(angle), math.sin(angle)])
    a, b = CAGrad(c=c).weighting()(Gram(f @ f, r @ r, f @ r))
    mean = (f + r) / 2
    turns = np.linspace(0, 2 * math.pi, 200_001)
    ball = mean + c * np.linalg.norm(mean) * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    got = a * f + b * r
    assert np.linalg.norm(got - mean) <= c * np.linalg.norm(mean) * (1 + 1e-6)
    assert min(got @ f, got @ r) == pytest.approx(np.minimum(ball @ f, ball @ r).max(), abs=2e-5)


def test_aligned_mtl_makes_the_gradients_orthogonal_and_equally_long():
    """σ G^(−½) turns (f, r) into an orthogonal pair of the length σ, the smallest singular value."""
    gram = np.array([[4.0, -1.5], [-1.5, 1.0]])
    values, vectors = np.linalg.eigh(gram)
    whitened = math.sqrt(values[0]) * vectors @ np.diag(values**-0.5) @ vectors.T
    np.testing.assert_allclose(whitened @ gram @ whitened.T, values[0] * np.eye(2), atol=1e-12)
    assert RULES[AlignedMTL](Gram(4.0, 1.0, -1.5)) == pytest.approx(whitened @ [0.5, 0.5])


def test_settings_are_checked():
    with pytest.raises(GradPivotError, match="c is -1"):
        CAGrad(c=-1)
    with pytest.raises(GradPivotError, match="choose one of min, median, rmse"):
        AlignedMTL(scale_mode="max")


@pytest.mark.parametrize(("kind", "missing", "extra"), [
    (MGDA, "torchjd.aggregation", "torchjd"), (CAGrad, "torchjd.aggregation", "cagrad"),
])  # fmt: skip
def test_without_torchjd_it_says_what_to_install(kind, missing, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(GradPivotError, match=rf"-e '.\[{extra}\]'"):
        run(replace(kind(), epochs=1))


def test_without_a_solver_it_says_what_to_install(monkeypatch):
    """TorchJD itself is there, cvxpy is not."""
    from torchjd import _mixins

    monkeypatch.setattr(_mixins, "find_spec", lambda name: None)
    for kind, extra in ((CAGrad, "cagrad"), (UPGrad, "torchjd")):
        with pytest.raises(GradPivotError, match=rf"-e '.\[{extra}\]'"):
            kind().weighting()


def test_the_shared_class_is_no_method():
    assert "name" not in TorchJDDescent.__dict__
