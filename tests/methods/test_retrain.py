from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot import Classification, ForgetSplit, Retrain, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


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
    with pytest.raises(GradPivotError, match="a different model than"):
        unlearn(trained(), split(), Retrain(epochs=1), factory=WithOwnWeight)


def test_paper_recipe():
    method = Retrain.protocol("paper")
    assert (method.lr, method.epochs, method.schedule) == (0.1, 200, "cosine")


def test_short_recipe():
    method = Retrain.from_dict(Retrain.short)
    assert (method.schedule, method.nesterov, method.epochs) == ("one_cycle", True, 20)


@pytest.mark.parametrize("wrong", [{"optimizer": "adam"}, {"momentum": 0.0}])
def test_nesterov_is_of_sgd_with_momentum(wrong):
    with pytest.raises(GradPivotError, match="nesterov needs SGD with momentum"):
        Retrain(nesterov=True, **wrong)


@pytest.mark.parametrize("wrong", [-0.1, 1.0])
def test_label_smoothing_has_a_range(wrong):
    with pytest.raises(GradPivotError, match=r"label_smoothing is .*; it must be a number ≥ 0 and < 1"):
        Retrain(label_smoothing=wrong)


def test_nesterov_steps_as_its_formula_says():
    """v ← μv + g, θ ← θ − λ(g + μv): the first step is (1 + μ) times as long as the plain one."""
    split_ = split()
    start = unlearn(trained(), split_, Retrain(epochs=1, batch_size=80, lr=1e-12), factory=TinyNet).model
    plain, ahead = (
        unlearn(
            trained(), split_, Retrain(epochs=1, batch_size=80, lr=0.1, weight_decay=0, nesterov=nesterov),
            factory=TinyNet,
        ).model
        for nesterov in (False, True)
    )  # fmt: skip
    for s, p, a in zip(start.parameters(), plain.parameters(), ahead.parameters(), strict=True):
        torch.testing.assert_close(a - s, 1.9 * (p - s), atol=1e-6, rtol=1e-3)


@pytest.mark.numeric
def test_label_smoothing_bounds_the_confidence():
    """The optimum of a smoothed loss is p = 1 − ε + ε/k; plain cross-entropy goes on to 1."""
    from torch.nn.functional import cross_entropy

    sharp, smooth = (
        unlearn(trained(), split(), Retrain(lr=0.1, epochs=30, batch_size=20, label_smoothing=e)).model
        for e in (0.0, 0.3)
    )
    features, labels = blobs().tensors
    kept = labels != 0
    with torch.no_grad():
        confidence = [
            m.eval()(features[kept]).softmax(1).gather(1, labels[kept, None]).median() for m in (sharp, smooth)
        ]
        logits = smooth(features[kept])
    assert confidence[0] > 0.99
    assert confidence[1] == pytest.approx(0.8, abs=0.05)
    smoothed = Classification().smoothed_loss(lambda x: logits, (features[kept], labels[kept]), 0.3)
    uniform = -logits.log_softmax(1).mean(1)
    true = cross_entropy(logits, labels[kept], reduction="none")
    torch.testing.assert_close(smoothed, (0.7 * true + 0.3 * uniform).mean())


class OwnLoss(Classification):
    def retain_loss(self, model, batch):
        return 2 * super().retain_loss(model, batch)


def test_a_loss_of_ones_own_is_not_smoothed_away():
    with pytest.raises(GradPivotError, match=r"OwnLoss.*use label_smoothing=0"):
        unlearn(trained(), split(), Retrain(epochs=1, label_smoothing=0.1), task=OwnLoss())


def test_plain_training_measures_no_products_and_still_sees_infinities():
    result = unlearn(trained(), split(), Retrain(epochs=1))
    assert set(result.history["delta_retain"]) == {None}
    assert all(norm > 0 for norm in result.history["retain_norm"])
    wild = unlearn(trained(), split(), Retrain(lr=1e30, epochs=2, schedule="constant"))
    assert wild.diverged is not None
    assert all(bool(p.isfinite().all()) for p in wild.model.parameters())
