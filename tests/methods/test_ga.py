from __future__ import annotations

import torch

from gradpivot import GA, WS, ForgetSplit, unlearn
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestGA(MethodContract):
    method = GA(lr=0.02, epochs=15)
    least_ra = 0.0  # nothing holds the rest in place


def test_uses_no_retain_gradient():
    result = TestGA().run()
    assert set(result.history["retain_loss"]) == {None}
    assert set(result.history["delta_retain"]) == {None}
    assert set(result.history["pareto_stationary"]) == {False}


def test_paper_space_is_twenty_even_rates():
    rates = [method.lr for method in GA.space()]
    assert len(rates) == 20
    assert (rates[0], rates[-1]) == (1e-4, 1e-2)


def test_a_forget_gradient_that_is_exactly_zero_is_no_crash():
    """With a floor, everything forgotten means nothing left to descend."""
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = -1e4
    for method in (GA(epochs=1), WS(epochs=1, retain_weight=0)):
        result = unlearn(model, ForgetSplit.by_class(blobs(), blobs(seed=1), 0), method)
        assert result.scores.ua == 1.0
        assert set(result.history["delta_forget"]) == {0.0}
