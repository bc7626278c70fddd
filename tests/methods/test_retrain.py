from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot import ForgetSplit, Retrain, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.testing import MethodContract, blobs, trained
from gradpivot.testing.problems import TinyNet


class TestRetrain(MethodContract):
    method = Retrain(lr=0.1, epochs=20, batch_size=20)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def test_does_not_depend_on_the_weights_it_is_given():
    model = trained()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    short = Retrain(epochs=1)
    first, second = (unlearn(m, split(), short, factory=TinyNet) for m in (model, trained()))
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_reinitialises_modules_without_a_factory():
    result = unlearn(trained(), split(), Retrain(lr=0.1, epochs=20, batch_size=20))
    assert result.scores.ua == 1.0


class WithOwnWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


def test_refuses_weights_it_cannot_reinitialise_by_name():
    with pytest.raises(GradPivotError, match=r"scale cannot be re-initialised; pass factory"):
        unlearn(WithOwnWeight(), split(), Retrain(epochs=1))


def test_a_factory_of_another_model_is_refused():
    with pytest.raises(GradPivotError, match="another kind of model"):
        unlearn(trained(), split(), Retrain(epochs=1), factory=WithOwnWeight)


def test_paper_recipe():
    method = Retrain.protocol("paper")
    assert (method.lr, method.epochs, method.schedule) == (0.1, 200, "cosine")
