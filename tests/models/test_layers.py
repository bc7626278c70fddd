from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.models import SmallCNN, last_layers, resnet18


def last(model: nn.Module, inputs: torch.Tensor, count: int) -> tuple[str, ...]:
    return last_layers(model, lambda: model(inputs), count)


def test_the_last_three_of_a_residual_network_are_its_last_block_and_head():
    names = last(resnet18(), torch.rand(1, 3, 32, 32), 3)
    block = [f"layer4.1.{part}" for part in ("conv1", "bn1", "conv2", "bn2")]
    assert names == (*block, "linear")


def test_a_number_beyond_the_layers_gives_all_of_them():
    model = SmallCNN()
    assert last(model, torch.rand(1, 1, 8, 8), 9) == ("conv1", "conv2", "linear")


def test_layers_are_counted_in_the_order_of_use():
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.body = nn.Linear(4, 2), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))

    assert last(Backwards(), torch.rand(2, 4), 1) == ("head",)


def test_normalisation_belongs_to_the_layer_before_it():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    assert last(model, torch.rand(2, 4), 2) == ("1", "2", "4")


def test_an_attention_layer_brings_its_projection_which_is_never_called():
    model = nn.TransformerEncoderLayer(8, 2)
    names = last(model, torch.rand(2, 3, 8), 3)
    assert names == ("self_attn", "self_attn.out_proj", "norm1", "linear1", "linear2", "norm2")


def test_the_pass_changes_no_mode_and_leaves_no_hook():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).train()
    before = model[1].running_mean.clone()
    last(model, torch.rand(8, 4), 1)
    assert model.training
    assert torch.equal(model[1].running_mean, before)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_model_without_layers_is_refused():
    with pytest.raises(GradPivotError, match="no layer with a weight matrix"):
        last(nn.BatchNorm1d(4), torch.rand(2, 4), 1)
