from __future__ import annotations

import pytest
import torch

from gradpivot import ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.methods import EUk
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


class TestEUk(MethodContract):
    method = EUk(k=2, lr=0.05, epochs=20, batch_size=16)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def moved(method: EUk) -> dict[str, bool]:
    before = dict(trained().named_parameters())
    after = unlearn(trained(), split(), method, factory=TinyNet).model.named_parameters()
    return {name: not torch.equal(value, before[name]) for name, value in after}


def test_only_the_last_k_layers_move():
    names = list(moved(EUk(k=1, epochs=1)).items())
    assert [changed for _, changed in names] == [False] * (len(names) - 2) + [True, True]


def test_the_head_is_reinitialised():
    """A learning rate of almost zero: what changes is the re-initialisation."""
    original = trained()
    result = unlearn(original, split(), EUk(k=1, lr=1e-12, epochs=1), factory=TinyNet)
    (*_, before), (*_, after) = original.parameters(), result.model.parameters()
    assert float((before - after).detach().abs().max()) > 1e-3


def test_all_weights_can_be_trained_again_afterwards():
    result = unlearn(trained(), split(), EUk(k=1, epochs=1), factory=TinyNet)
    assert all(parameter.requires_grad for parameter in result.model.parameters())


def test_a_layer_with_a_frozen_bias_is_trained_all_the_same():
    model = trained()
    bias = model.layers[-1].bias.requires_grad_(False)
    result = unlearn(model, split(), EUk(k=1, epochs=5), factory=TinyNet)
    assert torch.equal(result.model.layers[-1].bias, bias)
    assert not torch.equal(result.model.layers[-1].weight, model.layers[-1].weight)
    assert result.scores.ua >= 0.9


def test_tied_weights_are_trained():
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
            self.last.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x).relu())

    model = Tied()
    result = unlearn(model, split(), EUk(k=1, epochs=1), factory=Tied)
    assert not torch.equal(result.model.last.weight, model.last.weight)
    assert result.model.last.weight is result.model.first.weight


@pytest.mark.parametrize("k", [0, 1.5, True])
def test_k_is_a_positive_integer(k):
    with pytest.raises(GradPivotError, match="EU-k: k is"):
        EUk(k=k)
