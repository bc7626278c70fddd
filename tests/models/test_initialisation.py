from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.models import SmallCNN, reinitialise, shrink_and_perturb


class Own(nn.Module):
    """A layer and a parameter that no module resets."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 2)


def changed(model: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("factory", [None, SmallCNN])
def test_only_the_named_modules_change(factory):
    model = SmallCNN()
    before = copy.deepcopy(model.state_dict())
    reinitialise(model, factory, only=("conv2", "linear"))
    assert changed(model, before) == {"conv2.weight", "conv2.bias", "linear.weight", "linear.bias"}


@pytest.mark.parametrize("factory", [None, SmallCNN])
def test_everything_changes_by_default(factory):
    model = SmallCNN()
    before = copy.deepcopy(model.state_dict())
    reinitialise(model, factory)
    assert changed(model, before) == set(before)


def test_a_weight_that_nothing_resets_is_an_error_only_if_asked_for():
    reinitialise(Own(), None, only=("layer",))
    for only in (None, ("",)):
        with pytest.raises(GradPivotError, match="scale cannot be re-initialised"):
            reinitialise(Own(), None, only=only)


def test_running_statistics_are_reset_with_their_module():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    for layer in model:
        layer.running_mean.fill_(3.0)
    reinitialise(model, None, only=("1",))
    assert model[0].running_mean.tolist() == [3.0] * 4
    assert model[1].running_mean.tolist() == [0.0] * 4


def test_shrink_and_perturb_mixes_with_what_the_factory_makes():
    old, new = nn.Linear(3, 2), nn.Linear(3, 2)
    model = copy.deepcopy(old)
    shrink_and_perturb(model, lambda: copy.deepcopy(new), 0.25)
    torch.testing.assert_close(model.weight, 0.25 * old.weight + 0.75 * new.weight)
    torch.testing.assert_close(model.bias, 0.25 * old.bias + 0.75 * new.bias)


def test_shrink_and_perturb_leaves_frozen_weights():
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    shrink_and_perturb(model, None, 0.5)
    assert changed(model, before) == {"weight"}


def test_shrink_and_perturb_needs_a_factory_for_what_no_module_resets():
    with pytest.raises(GradPivotError, match="scale cannot be re-initialised"):
        shrink_and_perturb(Own(), None, 0.5)
