"""Batch statistics of another pass normalise, gradients flow through them, and layers stay as they are."""

import copy

import pytest
import torch
from torch import nn

from gradpivot.loop import statistics_of
from gradpivot.loop.normalisation import recalibrate


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 2))


def test_statistics_of_another_pass_normalise_and_are_kept_as_they_were():
    net, inputs, reference = model().train(), torch.randn(8, 3), torch.randn(64, 3) + 1
    net[2].p = 0.0
    before = copy.deepcopy(net.state_dict())
    with statistics_of(net, lambda: net(reference)):
        found = net(inputs)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    recalibrate(net, [(64, reference)], lambda m, batch: m(batch))
    # A running variance is unbiased.
    net[1].running_var *= 63 / 64
    torch.testing.assert_close(found, net.eval()(inputs), rtol=1e-4, atol=1e-5)


def test_a_gradient_knows_that_statistics_follow_the_weights():
    """A shift before BatchNorm changes nothing, because the statistics shift too."""
    net, inputs, reference = model().train(), torch.randn(8, 3), torch.randn(64, 3)
    with statistics_of(net, lambda: net(reference)):
        net(inputs).square().sum().backward()
    assert net[0].bias.grad.abs().max() < 1e-5 * net[0].weight.grad.abs().max()


def test_a_layer_that_is_used_twice_has_statistics_for_each_use():
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(3).train()
    reference, inputs = torch.randn(64, 3), torch.randn(5, 3)

    def twice(values: torch.Tensor) -> torch.Tensor:
        return layer(3 * layer(values) + 7)

    with statistics_of(layer, lambda: twice(reference)):
        found = twice(inputs)
    expected = (inputs - reference.mean(0)) / reference.std(0, correction=0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_pass_that_fails_leaves_the_layers_as_they_were():
    net = model().train()

    def fail() -> None:
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError), statistics_of(net, fail):
        pass
    with pytest.raises(RuntimeError), statistics_of(net, lambda: net(torch.randn(8, 3))):
        fail()
    assert net[1].momentum == 0.1
    assert net[1].num_batches_tracked == 0


class ActivatedNorm(nn.BatchNorm1d):
    """As timm's BatchNormAct2d: normalisation and activation in one layer."""

    def forward(self, values: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return torch.relu(super().forward(values)) * factor


def test_a_subclass_keeps_what_it_does_besides():
    torch.manual_seed(0)
    layer, values = ActivatedNorm(3).train(), torch.randn(16, 3)
    with statistics_of(layer, lambda: layer(values)):
        found = layer(values, factor=2.0)
    torch.testing.assert_close(found, layer(values, factor=2.0), rtol=1e-4, atol=1e-5)


def test_a_wrapped_forward_stays_wrapped():
    """Accelerate's hooks replace the forward of an instance."""
    layer, values, calls = nn.BatchNorm1d(3).train(), torch.randn(16, 3), []
    own = layer.forward
    layer.forward = lambda x: calls.append(len(x)) or own(x)
    with statistics_of(layer, lambda: layer(values)):
        layer(values[:4])
    layer(values)
    assert calls == [16, 4, 16]


def test_a_layer_that_the_other_pass_skips_uses_its_running_statistics():
    layer, values = nn.BatchNorm1d(3).train(), torch.randn(16, 3)
    with statistics_of(layer, lambda: None):
        found = layer(values)
    torch.testing.assert_close(found, layer.eval()(values))


def test_double_precision_is_kept():
    torch.manual_seed(0)
    layer, values = nn.BatchNorm1d(3).double().train(), 5 + 1e-3 * torch.randn(64, 3, dtype=torch.float64)
    with statistics_of(layer, lambda: layer(values)):
        found = layer(values)
    torch.testing.assert_close(found, layer(values), rtol=1e-9, atol=1e-9)
