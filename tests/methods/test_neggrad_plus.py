from __future__ import annotations

import pytest
import torch

from gradpivot import Classification, ForgetSplit, NegGradPlus, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.loop.loop import Loop
from gradpivot.methods.method import Descent
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestNegGradPlus(MethodContract):
    method = NegGradPlus(beta=0.8, lr=0.02, epochs=15)
    least_ra = 0.6  # −CE has no floor


class TestNegGradPlusAsPrinted(MethodContract):
    method = NegGradPlus.protocol("paper", beta=0.8, lr=0.01, epochs=15, batch_size=8)
    least_ra = 0.6


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def still() -> torch.nn.Module:
    """A model without dropout."""
    model = trained()
    model.layers[3].p = 0.0
    return model


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.95, 1.0])
def test_a_step_is_the_gradient_of_the_two_weighted_cross_entropies(beta):
    data = ForgetSplit.by_class(blobs(per_class=4), blobs(seed=1), 0)
    method = NegGradPlus(beta=beta, lr=0.1, epochs=1, batch_size=4, retain_batch_size=8, momentum=0, max_norm=None)
    mine, expected = unlearn(still(), data, method), still()
    inputs, labels = blobs(per_class=4).tensors
    forget, retain = (
        torch.nn.functional.cross_entropy(expected(inputs[part]), labels[part]) for part in (labels == 0, labels != 0)
    )
    (beta * retain - (1 - beta) * forget).backward()
    for after, before in zip(mine.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.1 * before.grad, rtol=1e-4, atol=1e-6)
    assert mine.history["forget_weight"] == [1 - beta]
    assert mine.history["retain_weight"] == [beta]


class FineTuning(Descent):
    """Cross-entropy on the retain halves of paired batches."""

    def unlearn(self, model, task, split, loop):
        for batch in loop.paired_batches(model, task, split, self):
            gradients = loop.gradients(retain=lambda data=batch.retain: task.retain_loss(model, data))
            loop.step(gradients, Weights(0.0, 1.0))


def test_with_beta_1_it_is_fine_tuning_on_the_same_batches():
    models = [
        Loop().run(method, still(), Classification(), split()).model
        for method in (NegGradPlus(beta=1.0, lr=0.05, epochs=3), FineTuning(lr=0.05, epochs=3))
    ]
    for mine, theirs in zip(*(m.parameters() for m in models), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.numeric
def test_less_beta_forgets_more():
    def confidence(beta: float) -> float:
        model = unlearn(trained(), split(), NegGradPlus(beta=beta, lr=0.01, epochs=8)).model
        inputs, labels = blobs().tensors
        return float(model(inputs[labels == 0]).detach().softmax(1)[:, 0].mean())

    found = [confidence(beta) for beta in (1.0, 0.9, 0.5)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan")])
def test_beta_is_a_fraction(beta):
    with pytest.raises(GradPivotError, match="beta is"):
        NegGradPlus(beta=beta)
