from __future__ import annotations

import pytest
import torch
from torch import nn

import planted
from gradpivot.auditing.attacks.quantisation import QUANTISE_4, QUANTISE_8, quantise
from gradpivot.results import judge


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("layer", [nn.Linear(5, 3), nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3)], ids=str)
def test_each_output_channel_has_so_many_levels_and_keeps_its_largest_weight(layer, bits):
    before = layer.weight.detach().clone()
    quantise(layer, bits)
    channels = 1 if isinstance(layer, nn.ConvTranspose2d) else 0
    for old, new in zip(before.unbind(channels), layer.weight.detach().unbind(channels), strict=True):
        step = old.abs().max() / (2 ** (bits - 1) - 1)
        assert torch.allclose(new / step, (new / step).round(), atol=1e-4)
        assert (new - old).abs().max() <= step / 2 * (1 + 1e-4)
        assert new.abs().max() == pytest.approx(float(old.abs().max()), rel=1e-5)


def test_a_channel_of_zeros_stays():
    layer = nn.Linear(3, 2)
    nn.init.zeros_(layer.weight)
    quantise(layer, 4)
    assert torch.equal(layer.weight, torch.zeros(2, 3))


@pytest.mark.numeric
@pytest.mark.parametrize("attack", [QUANTISE_4, QUANTISE_8], ids=lambda attack: attack.name)
def test_an_original_is_caught_and_a_retrained_model_passes(attack):
    found = attack.run(planted.case(planted.original()))
    assert judge(found, 10) == "distinguishable"
    assert judge(attack.run(planted.case(planted.retrained(7))), 10) == "indistinguishable"


def test_a_change_below_the_resolution_is_undone():
    """A model whose forgetting is in changes smaller than half a level forgets nothing once it is rounded."""
    changed, rounded = planted.original(), planted.original()
    with torch.no_grad():
        for layer in (layer for layer in changed.modules() if isinstance(layer, nn.Linear)):
            inner = layer.weight.abs() < layer.weight.abs().amax(dim=1, keepdim=True)
            step = layer.weight.abs().amax(dim=1, keepdim=True) / 7
            level = (layer.weight / step).round() * step
            layer.weight.copy_(torch.where(inner, level + 0.4 * step * torch.sign(layer.weight - level), layer.weight))
    quantise(changed, 4)
    quantise(rounded, 4)
    for one, other in zip(changed.parameters(), rounded.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
