from __future__ import annotations

import math

import pytest

from gradpivot.methods.nash_mtl import NashMTL
from gradpivot.testing.contract import MethodContract


class TestNashMTL(MethodContract):
    method = NashMTL(lr=0.005, epochs=10)


@pytest.mark.numeric
def test_both_losses_gain_the_same_and_the_length_is_constant():
    """a·⟨f,g⟩ = b·⟨r,g⟩ = 1 at every step."""
    history = TestNashMTL().run(NashMTL(max_norm=None, momentum=0.0, epochs=2, lr=0.01)).history
    assert history["step_norm"] == pytest.approx([math.sqrt(2)] * len(history["step"]))
    for weight, delta in (("forget_weight", "delta_forget"), ("retain_weight", "delta_retain")):
        gains = [-a * d / 0.01 for a, d in zip(history[weight], history[delta], strict=True)]
        assert gains == pytest.approx([1.0] * len(gains), rel=2e-2)


def test_its_budget_goes_into_the_rate():
    assert NashMTL.knob == "lr"
    assert len({m.lr for m in NashMTL.space()}) == 20
    assert NashMTL.protocol("paper").max_norm == 1.0
