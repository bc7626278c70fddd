from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gradpivot.loop import optimizers
from gradpivot.loop.motion import RevertibleOptimizer
from gradpivot.loop.optimizers import make_optimizer
from gradpivot.methods.cup import CUP


class Shard(nn.Parameter):
    """Stands for a DTensor or a quantised weight: a parameter that is more than its numbers."""


def recipe(optimizer: str) -> CUP:
    return CUP(optimizer=optimizer, lr=0.01, momentum=0.9, weight_decay=5e-4)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = (7,), (33, 5), (), (40, 20, 3, 3)
    drawn = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    drawn[3].data = drawn[3].data.contiguous(memory_format=torch.channels_last)
    return drawn


def after_steps(optimizer: str, steps: int = 5) -> list[Tensor]:
    weights = parameters()
    stepping = make_optimizer(weights, recipe(optimizer))
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        stepping.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_fused_steps_are_the_unfused_ones(name, monkeypatch):
    fused, again = after_steps(name), after_steps(name)
    assert all(map(torch.equal, fused, again))
    monkeypatch.setattr(optimizers, "_fusible", lambda parameters: False)
    for mine, theirs in zip(fused, after_steps(name), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("tensor", "fused"),
    [
        (nn.Parameter(torch.ones(2)), True),
        (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), False),
        (Shard(torch.ones(2)), False),
        (nn.Parameter(torch.ones(2, device="meta")), False),
        (nn.Parameter(torch.ones(4)[::2]), False),
    ],
)
def test_only_plain_tensors_are_stepped_in_one_pass(tensor, fused):
    group = make_optimizer([tensor], recipe("sgd")).param_groups[0]
    assert group["fused"] is fused
    assert group["foreach"] is not fused


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_a_state_from_unfused_steps_is_continued(name, monkeypatch):
    """A checkpoint from before steps were fused, or from another device."""
    torch.manual_seed(0)
    whole, half, rest = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
    half.load_state_dict(whole.state_dict())

    def steps(descent: RevertibleOptimizer, numbers: range) -> None:
        for number in numbers:
            gradients = [torch.full_like(p, 0.1 + number) for p in descent.parameters]
            descent.step(number, gradients, [None, None], None)

    steps(RevertibleOptimizer(whole, recipe(name), 4), range(4))
    with monkeypatch.context() as patched:
        patched.setattr(optimizers, "_fusible", lambda parameters: False)
        first = RevertibleOptimizer(half, recipe(name), 4)
        steps(first, range(2))
    second = RevertibleOptimizer(rest, recipe(name), 4)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(second, range(2, 4))
    torch.testing.assert_close(rest.weight, whole.weight, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_a_state_in_another_layout_is_continued(name):
    """A fused kernel would read the momentum of another weight."""
    torch.manual_seed(0)
    last = nn.Conv2d(4, 6, 3, bias=False).to(memory_format=torch.channels_last)
    plain = nn.Conv2d(4, 6, 3, bias=False)
    plain.load_state_dict(last.state_dict())
    drawn = torch.randn(3, *plain.weight.shape)

    def step(weight: nn.Parameter, stepping: torch.optim.Optimizer, gradient: Tensor) -> None:
        weight.grad = gradient.clone()
        stepping.step()

    first, second = (make_optimizer([conv.weight], recipe(name)) for conv in (plain, last))
    step(plain.weight, first, drawn[0])
    last.weight.data.copy_(plain.weight)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for gradient in drawn[1:]:
        step(plain.weight, first, gradient)
        step(last.weight, second, gradient)
    torch.testing.assert_close(last.weight, plain.weight, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_momentum_is_right_in_every_precision(dtype, off):
    """Against the sums written out in float64: fused kernels were wrong in bfloat16."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(4096, generator=generator).to(dtype))
    exact, momentum = weight.detach().double(), 0.0
    stepping = make_optimizer([weight], CUP(lr=0.01, momentum=0.9, weight_decay=0.0))
    for _ in range(20):
        weight.grad = torch.randn(4096, generator=generator).to(dtype)
        momentum = 0.9 * momentum + weight.grad.double()
        exact -= 0.01 * momentum
        stepping.step()
    assert (weight.double() - exact).abs().mean() < off
