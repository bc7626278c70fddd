from __future__ import annotations

from gradpivot.runtime.modes import evaluating
from gradpivot.testing.problems import TinyNet


def test_evaluating_restores_every_mode():
    model = TinyNet()
    model.layers[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert model.training
    assert not model.layers[1].training
