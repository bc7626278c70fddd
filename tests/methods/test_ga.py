from __future__ import annotations

from gradpivot import GA
from gradpivot.testing import MethodContract


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
