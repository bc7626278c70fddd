from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from gradpivot import CUP, WS, Retrain
from gradpivot.geometry.gramian import change_along, gram_of
from gradpivot.geometry.weighting import Weights
from gradpivot.loop.combined import Combined
from gradpivot.loop.gradients import Gradients
from gradpivot.loop.motion import RevertibleOptimizer

MODEL = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def gradients(model: nn.Module) -> Gradients:
    generator = torch.Generator().manual_seed(0)
    f, r = ([torch.randn(p.shape, generator=generator) for p in model.parameters()] for _ in range(2))
    return Gradients([*f], [*r], gram_of(f, r), 1.0, 1.0)


@pytest.mark.parametrize("weights", [Weights(0.3, 1.7), Weights(1.0, 0.0), Weights(-0.5, 0.2)])
def test_a_plain_step_is_sgd_bit_for_bit_and_its_products_follow_from_the_gram_matrix(weights):
    model, twin = copy.deepcopy(MODEL), copy.deepcopy(MODEL)
    both = gradients(model)
    f, r = ([g.clone() for g in side] for side in (both.forget, both.retain))
    combined, norm = Combined(both, weights), both.gram.norm_of(*weights)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = RevertibleOptimizer(model, CUP(lr=0.01), 10)
    length = optimizer.plain_step(0, combined.gradient, norm, rate=0.5)
    assert length == pytest.approx(0.005)
    sgd = torch.optim.SGD(twin.parameters(), lr=length)
    for parameter, gradient in zip(twin.parameters(), combined.gradient, strict=True):
        parameter.grad = gradient
    sgd.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    (ff, rr, fr), (a, b) = both.gram, weights
    measured = change_along(before, [p.detach() for p in model.parameters()], f, r)
    expected = (length * norm) ** 2, -length * (a * ff + b * fr), -length * (a * fr + b * rr)
    assert measured == pytest.approx(expected, rel=1e-4, abs=1e-6)
    optimizer.restore_last_good()
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    "method", [CUP(momentum=0.9), CUP(weight_decay=1e-3), CUP(optimizer="adam"), WS(lr=0.1), Retrain(nesterov=True)]
)
def test_an_optimiser_that_does_more_takes_its_own_step(method):
    model = copy.deepcopy(MODEL)
    assert RevertibleOptimizer(model, method, 10).plain_step(0, gradients(model).forget, 1.0) is None


def test_weights_that_rounding_or_overflow_could_spoil_are_looked_at_after_the_step():
    model = copy.deepcopy(MODEL)
    both = gradients(model)
    for length in (1e31, math.inf, math.nan):
        assert RevertibleOptimizer(model, CUP(lr=1.0), 10).plain_step(0, both.forget, length) is None
    half = copy.deepcopy(MODEL).bfloat16()
    assert RevertibleOptimizer(half, CUP(), 10).plain_step(0, both.forget, 1.0) is None
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert RevertibleOptimizer(model, CUP(), 10).plain_step(0, both.forget, 1.0) is None
