from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot.loop.normalisation import (
    frozen_statistics,
    has_frozen_batchnorm,
    recalibrate,
    recalibrate_over,
    restored_statistics,
    same_statistics,
)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def test_frozen_statistics_are_used_and_kept_while_other_layers_train():
    net = model().train()
    inputs = torch.randn(8, 3)
    before = copy.deepcopy(net[1].state_dict())
    with frozen_statistics(net):
        assert net[2].training
        found = net[1](inputs @ net[0].weight.T)
    assert net[1].training
    assert all(torch.equal(value, before[name]) for name, value in net[1].state_dict().items())
    expected = net.eval()[1](inputs @ net[0].weight.T)
    torch.testing.assert_close(found, expected)


def test_restored_statistics_include_the_counter():
    net = model().train()
    before = copy.deepcopy(net[1].state_dict())
    with restored_statistics(net):
        net(torch.randn(8, 3))
        assert not torch.equal(net[1].running_mean, before["running_mean"])
    assert all(torch.equal(value, before[name]) for name, value in net[1].state_dict().items())


def test_same_statistics_ignore_weights_and_counters():
    first, second = model(), model()
    with torch.no_grad():
        second[0].weight += 1
    second[1].num_batches_tracked += 3
    assert same_statistics(first, second)
    second[1].running_var += 1
    assert not same_statistics(first, second)


def test_statistics_that_are_not_finite_are_discarded():
    net = model()
    before = copy.deepcopy(net.state_dict())
    recalibrate(net, [(8, torch.full((8, 3), torch.nan))], lambda m, batch: m(batch))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    recalibrate(net, [(8, torch.randn(8, 3))], lambda m, batch: m(batch))
    assert not torch.equal(net[1].running_mean, before["1.running_mean"])


def test_an_error_in_the_pass_restores_momentum():
    net = model()

    def fail(*_: object) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        recalibrate(net, [(8, None)], fail)
    assert net[1].momentum == 0.1


def test_a_frozen_layer_is_found():
    net = model()
    assert not has_frozen_batchnorm(net)
    net[0].requires_grad_(False)
    assert not has_frozen_batchnorm(net)
    net[1].bias.requires_grad_(False)
    assert has_frozen_batchnorm(net)


def test_recomputed_statistics_are_those_of_augmented_images():
    """Crops pad with black, which the statistics of an image network contain."""
    images = torch.full((64, 1, 8, 8), 200, dtype=torch.uint8)
    data = TensorDataset(images, torch.zeros(64, dtype=torch.long))
    means = {}
    for augment in ("none", "crop_flip", "crop_flip"):
        net = nn.Sequential(nn.BatchNorm2d(1))
        recalibrate_over(
            net, data, np.arange(64), lambda m, batch: m(batch[0].float()), batch_size=64, seed=0, augment=augment
        )
        means.setdefault(augment, set()).add(net[0].running_mean.item())
    assert len(means["crop_flip"]) == 1
    assert means["crop_flip"].pop() < means["none"].pop() - 10
