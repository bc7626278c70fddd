from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gradpivot import Classification
from gradpivot.errors import GradPivotError
from gradpivot.methods.parts.head import extra_output, find_head
from gradpivot.testing.problems import blobs, trained


class Net(nn.Module):
    """A head between other linear layers, with outputs in every form there is."""

    def __init__(self, how: str = "tensor", bias: bool = True) -> None:
        super().__init__()
        self.aside, self.head, self.body = nn.Linear(5, 3), nn.Linear(5, 3, bias=bias), nn.Linear(4, 5)
        self.how = how

    def forward(self, x):
        hidden = self.body(x)
        logits = self.head(input=hidden)
        self.aside(hidden)
        forms = {
            "tensor": lambda: logits,
            "dict": lambda: {"loss": None, "logits": logits},
            "object": lambda: SimpleNamespace(logits=logits),
            "scaled": lambda: 2 * logits,
        }
        return forms[self.how]()


BATCH = (torch.randn(2, 4), torch.tensor([0, 1]))


@pytest.mark.parametrize("how", ["tensor", "dict", "object"])
def test_the_head_is_the_layer_whose_output_is_the_logits(how):
    model = Net(how)
    assert find_head(model, Classification(), BATCH) is model.head


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_also_of_a_half_precision_model(dtype):
    model = Net().to(dtype)
    assert find_head(model, Classification(), (BATCH[0].to(dtype), BATCH[1])) is model.head


def test_a_model_that_is_its_own_head():
    model = nn.Linear(4, 3)
    assert find_head(model, Classification(), BATCH) is model


def test_a_scaled_head_has_to_be_named():
    model = Net("scaled")
    with pytest.raises(GradPivotError, match="set head to its name"):
        find_head(model, Classification(), BATCH)
    assert find_head(model, Classification(), BATCH, "head") is model.head
    with pytest.raises(GradPivotError, match="linear layers are 'aside', 'head', 'body'"):
        find_head(model, Classification(), BATCH, "heads")
    with pytest.raises(GradPivotError, match="with an extra output of 'aside' the model has 3 outputs instead of 4"):
        find_head(model, Classification(), BATCH, "aside")


@pytest.mark.parametrize("bias", [True, False])
def test_inside_there_is_one_more_output_and_afterwards_there_is_not(bias):
    model = Net(bias=bias)
    names, before = list(model.state_dict()), model(BATCH[0])
    with extra_output(model.head, seed=1):
        inside = model(BATCH[0])
        assert len(list(model.parameters())) == len(names) + (2 if bias else 1)
    assert inside.shape == (2, 4)
    assert torch.equal(inside[:, :3], before)
    assert torch.equal(model(BATCH[0]), before)
    assert list(model.state_dict()) == names
    assert not model.head._forward_hooks


def test_the_new_weights_depend_on_the_seed_and_disturb_nobody():
    def row(seed):
        model = trained()
        with extra_output(model.layers[4], seed):
            return model(blobs().tensors[0])[:, 3]

    assert torch.equal(row(1), row(1))
    assert not torch.equal(row(1), row(2))
    layer, state = nn.Linear(4, 3), torch.get_rng_state()
    with extra_output(layer, 1):
        assert torch.equal(torch.get_rng_state(), state)


def test_it_goes_when_the_block_fails():
    model = Net()
    with pytest.raises(ZeroDivisionError), extra_output(model.head, 0):
        raise ZeroDivisionError
    assert model(BATCH[0]).shape == (2, 3)
    with extra_output(model.head, 0), pytest.raises(GradPivotError, match="already"), extra_output(model.head, 0):
        pass
