from __future__ import annotations

import pytest
import torch

from gradpivot import GA, WS
from gradpivot.errors import GradPivotError
from gradpivot.testing.contract import MethodContract


class TestWS(MethodContract):
    method = WS(forget_weight=1.0, lr=0.02, epochs=15)


def test_weights_reach_the_step():
    history = TestWS().run(WS(forget_weight=0.25, retain_weight=2, max_norm=None, epochs=1)).history
    assert set(history["forget_weight"]) == {0.25}
    assert set(history["retain_weight"]) == {2}


def test_without_retain_weight_it_is_gradient_ascent():
    shared = {"lr": 0.01, "epochs": 2, "max_norm": None}
    ws, ga = TestWS().run(WS(retain_weight=0, **shared)), TestWS().run(GA(**shared))
    for mine, theirs in zip(ws.model.parameters(), ga.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_paper_space():
    assert len(WS.space()) == 20


def test_weights_are_checked():
    with pytest.raises(GradPivotError, match="forget_weight is -1"):
        WS(forget_weight=-1)
