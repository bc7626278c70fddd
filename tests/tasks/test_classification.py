from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gradpivot import Classification
from gradpivot.errors import GradPivotError
from gradpivot.tasks.batch import input_and_target
from gradpivot.tasks.objectives import objective

X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
MODEL = nn.Linear(3, 2)


class Wrapped(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = MODEL, how

    def forward(self, features=None, extra=None):
        logits = self.linear(features if extra is None else features + extra)
        return {"dict": {"logits": logits}, "object": SimpleNamespace(logits=logits)}.get(self.how, logits)


@pytest.mark.parametrize(
    "batch", [(X, Y), [X, Y], {"x": X, "y": Y}, {"image": X, "label": Y}, {"pixel_values": X, "labels": Y}]
)
def test_batches_of_the_usual_kinds(batch):
    expected = nn.functional.cross_entropy(MODEL(X), Y)
    torch.testing.assert_close(Classification().retain_loss(MODEL, batch), expected)


def test_an_adapter_of_ones_own():
    task = Classification(adapter=lambda b: (b["pixels"], b["digit"]))
    logits, targets = task.logits(MODEL, {"pixels": X, "digit": Y})
    torch.testing.assert_close(logits, MODEL(X))
    assert torch.equal(targets, Y)
    assert task.target_of({"pixels": X[0], "digit": 7}) == 7


@pytest.mark.parametrize("how", ["dict", "object", "tensor"])
@pytest.mark.parametrize("inputs", [X, (X, torch.zeros(3)), {"features": X, "extra": torch.zeros(3)}])
def test_inputs_and_outputs_of_the_usual_kinds(how, inputs):
    logits, _ = Classification().logits(Wrapped(how), (inputs, Y))
    torch.testing.assert_close(logits, MODEL(X))


def test_predictions():
    found = Classification().predict(MODEL, (X, Y))
    probabilities = MODEL(X).double().softmax(1)
    torch.testing.assert_close(found.confidence, probabilities[range(4), Y])
    assert torch.equal(found.correct, probabilities.argmax(1) == Y)


def test_forget_loss_is_the_objective_on_the_logits():
    wanted = objective("unlikelihood")
    torch.testing.assert_close(Classification().forget_loss(MODEL, (X, Y), wanted), wanted(MODEL(X), Y))


@pytest.mark.parametrize("batch", [{"foo": X, "bar": Y}, (X, Y, Y), X])
def test_batches_that_cannot_be_read(batch):
    with pytest.raises(GradPivotError, match="adapter"):
        input_and_target(batch)


def test_outputs_that_are_no_logits():
    with pytest.raises(GradPivotError, match="more logits per sample"):
        Classification().logits(nn.Linear(3, 1), (X, Y))


class Returns(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ((X, X), "returns a tuple; it must return logits"),
        (None, "returns a NoneType; it must return logits"),
        ({"scores": X}, "returns a dictionary with 'scores', without 'logits'"),
    ],
)
def test_outputs_without_logits_are_explained(what, found):
    with pytest.raises(GradPivotError, match=found):
        Classification().logits(Returns(what), (X, Y))


@pytest.mark.parametrize("label", [-1, 2])
def test_labels_outside_the_outputs_are_explained(label):
    with pytest.raises(GradPivotError, match=r"outside 0 … 1"):
        Classification().logits(MODEL, (X, torch.full((4,), label)))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_outputs_are_float32_whatever_the_network_computes_in(half):
    """BE and BS take their losses from outputs; eight bits of log p are too few for a loss near zero."""
    model = torch.nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=half):
        assert model(torch.zeros(2, 4)).dtype is half
        assert Classification().outputs(model, torch.zeros(2, 4)).dtype is torch.float32
    assert Classification().outputs(model.double(), torch.zeros(2, 4).double()).dtype is torch.float64


def test_a_forget_loss_of_ones_own_is_what_is_steered_by():
    class Own(Classification):
        def forget_loss(self, model, batch, objective):
            return 7 * self.logits(model, batch)[0].mean()

    torch.manual_seed(0)
    model, batch = nn.Linear(2, 3), (torch.randn(8, 2), torch.arange(8) % 3)
    loss, degree = Own().forgetting(model, batch, objective("unlikelihood"))
    assert loss.item() == pytest.approx(7 * model(batch[0]).mean().item())
    assert loss.requires_grad
    assert degree.tolist() == (model(batch[0]).argmax(1) != batch[1]).double().tolist()
    plain = Classification().forgetting(model, batch, objective("unlikelihood"))
    assert plain.degree.tolist() == degree.tolist()
