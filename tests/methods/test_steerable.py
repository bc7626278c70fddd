from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gradpivot import CUP, DCGD, WS, PCGrad
from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.methods.registry import make_method
from gradpivot.testing.contract import MethodContract


class TestWSUnderTheDial(MethodContract):
    method = WS(gamma=0.9, lr=0.02, epochs=15)


class TestPCGradUnderTheDial(MethodContract):
    method = PCGrad(gamma=0.9, lr=0.02, epochs=15)


class TestDCGDUnderTheDial(MethodContract):
    method = DCGD(gamma=0.9, lr=0.02, epochs=15)


class TestCUPUnderRecomputedStatistics(MethodContract):
    method = CUP(gamma=1, batchnorm="recalibrate", lr=0.02, epochs=15)


norms = st.floats(1e-3, 1e3)


@given(f=norms, r=norms, cosine=st.floats(-0.99, 0.99), intensity=st.floats(-1, 1))
def test_ws_under_the_dial_weighs_the_losses_by_the_intensity(f, r, cosine, intensity):
    weights = WS(gamma=0.5).steered(Gram(f * f, r * r, cosine * f * r), intensity)
    assert weights == pytest.approx((intensity, 1 - abs(intensity)))


@given(f=norms, r=norms, cosine=st.floats(-0.99, 0.99), intensity=st.floats(0.01, 0.99))
def test_pcgrad_under_the_dial_is_pcgrad_with_these_loss_weights(f, r, cosine, intensity):
    gram = Gram(f * f, r * r, cosine * f * r)
    plain = PCGrad(forget_weight=intensity, retain_weight=1 - intensity).weighting()(gram)
    assert PCGrad(gamma=0.5).steered(gram, intensity) == pytest.approx(tuple(plain))


@given(f=norms, r=norms, cosine=st.floats(-0.99, 0.99), intensity=st.floats(-0.99, -0.01))
@pytest.mark.parametrize("method", [WS, PCGrad])
def test_a_negative_intensity_gives_back(method, f, r, cosine, intensity):
    a, b = method(gamma=0.5).steered(Gram(f * f, r * r, cosine * f * r), intensity)
    # Relative to what it does to L_r alone, the step ascends L_f.
    assert a * f <= max(0.0, -b * r * cosine) + 1e-9 * (f + r)


def test_gamma_walks_the_frontier_under_the_dial_and_the_own_knob_without():
    assert WS().active_knob == "forget_weight"
    assert WS(gamma=0.3).active_knob == CUP().active_knob == "gamma"
    assert WS(gamma=0.3).label == "WS(gamma=0.3)"
    assert make_method(WS(gamma=0.3).to_dict()) == WS(gamma=0.3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gamma": 1.2}, "1.2"),
        ({"goal": "unseen"}, "set gamma too"),
        ({"budget": 0.5}, "set gamma too"),
        ({"gamma": 0.5, "budget": 2}, "budget is 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(GradPivotError, match=said):
        WS(**settings)


def test_a_subclass_without_a_name_is_another_run():
    from gradpivot import ForgetSplit
    from gradpivot.runs.run import Running
    from gradpivot.testing.problems import blobs, trained

    class Half(CUP):
        def steered(self, gram, intensity):
            return super().steered(gram, intensity / 2)

    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    assert Running().key(split, Half(), trained()) != Running().key(split, CUP(), trained())


def test_jobs_under_the_dial_are_labelled_by_gamma():
    from gradpivot.sweep.engines.job import _searched_settings

    assert _searched_settings(WS(gamma=0.3).to_dict()) == {"lr": 0.001, "gamma": 0.3}
    assert _searched_settings(WS().to_dict()) == {"lr": 0.001, "forget_weight": 1.0}
