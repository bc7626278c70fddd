from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot import WS, Classification, ForgetSplit, SFRon, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.sfron import MIN_LOSS, sample_weights
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestSFRon(MethodContract):
    method = SFRon(lr=0.05, forget_rate=2.0, epochs=15)
    least_ra = 0.8


class TestSlowSFRon(MethodContract):
    method = SFRon(lr=0.05, epochs=15, outer_rate=0.5, exponent=1.0, weight_decay=0.01)
    least_ra = 0.8


class TestSFRonAsPrinted(MethodContract):
    method = SFRon.protocol("paper", lr=0.02, forget_rate=3.0, threshold=0.3, epochs=15, batch_size=8)
    least_ra = 0.7


PLAIN = {"momentum": 0.0, "max_norm": None, "lr": 0.01, "iterations": 1, "batch_size": 40}


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def plain_model() -> nn.Module:
    """A network without dropout, whose steps can be repeated by hand."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def double() -> ForgetSplit:
    inputs, labels = blobs().tensors
    data = torch.utils.data.TensorDataset(inputs.double(), labels)
    return ForgetSplit.by_class(data, data, 0)


def fisher(model: nn.Module, forgotten: bool) -> list[torch.Tensor]:
    inputs, labels = blobs().tensors
    chosen = ((labels == 0) == forgotten).nonzero()[:, 0].tolist()
    total = [torch.zeros_like(p) for p in model.parameters()]
    for i in chosen:
        loss = nn.functional.cross_entropy(model(inputs[i : i + 1].double()), labels[i : i + 1])
        for square, gradient in zip(total, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            square += gradient**2 / len(chosen)
    return total


def mask_by_hand(model: nn.Module, threshold: float) -> list[torch.Tensor]:
    pairs = zip(fisher(model, True), fisher(model, False), strict=True)
    return [f / r >= threshold for f, r in pairs]


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def run(method: SFRon, model: nn.Module) -> list[torch.Tensor]:
    return weights(Loop().run(method, model, Classification(), double()).model)


def test_sample_weights_are_a_power_of_the_loss():
    losses = torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    assert sample_weights(losses, 0.5).tolist() == [2.0, 1.0, 0.5]
    assert sample_weights(losses, 0.0).tolist() == [1.0, 1.0, 1.0]
    assert not sample_weights(losses, 0.5).requires_grad
    assert sample_weights(torch.zeros(1, dtype=torch.float64), 1.0).tolist() == pytest.approx([1 / MIN_LOSS])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_one_pair_is_the_algorithm(exponent):
    """By hand: a masked ascent step on weighted CE, a retain step at the new weights, and the slow step."""
    method = SFRon(**PLAIN, exponent=exponent, forget_rate=3.0, outer_rate=0.25, retain_batch_size=80)
    model = plain_model()
    inputs, labels = (blobs().tensors[0].double(), blobs().tensors[1])
    mask, start = mask_by_hand(model, 1.0), weights(model)
    assert 0 < sum(int(m.sum()) for m in mask) < sum(m.numel() for m in mask)
    after = run(method, model)

    losses = nn.functional.cross_entropy(model(inputs[labels == 0]), labels[labels == 0], reduction="none")
    forget = torch.autograd.grad((losses / losses.detach() ** exponent).mean(), list(model.parameters()))
    with torch.no_grad():
        for p, g, m in zip(model.parameters(), forget, mask, strict=True):
            p += 0.03 * g * m
    loss = nn.functional.cross_entropy(model(inputs[labels != 0]), labels[labels != 0])
    retain = torch.autograd.grad(loss, list(model.parameters()))
    for p, g, before, now in zip(model.parameters(), retain, start, after, strict=True):
        inner = p.detach() - 0.01 * g
        torch.testing.assert_close(now, before + 0.25 * (inner - before), rtol=1e-9, atol=1e-12)


def test_the_outer_rate_scales_the_change():
    model = plain_model()
    start = weights(model)
    whole, half = (run(SFRon(**PLAIN, outer_rate=rate), plain_model()) for rate in (1.0, 0.5))
    for before, far, near in zip(start, whole, half, strict=True):
        torch.testing.assert_close(near - before, 0.5 * (far - before), rtol=1e-9, atol=1e-12)


def test_forget_steps_stay_inside_the_mask_and_retain_steps_do_not():
    """Nothing is inside: the run is retain descent. Everything is: all weights take forget steps."""
    steps = {"momentum": 0.9, "weight_decay": 0.1, "lr": 0.01, "epochs": 2}
    none = unlearn(trained(), split(), SFRon(threshold=1e30, **steps))
    assert "no weight has F_f/F_r ≥ 1e+30" in none.note
    history = none.history
    assert {norm for norm, loss in zip(history["forget_norm"], history["forget_loss"], strict=True) if loss} == {0.0}
    changed = [not torch.equal(a, b) for a, b in zip(trained().parameters(), none.model.parameters(), strict=True)]
    assert all(changed)
    assert unlearn(trained(), split(), SFRon(threshold=0.0, **steps)).note is None


def test_a_pair_is_two_rows():
    history = unlearn(trained(), split(), SFRon(epochs=1, batch_size=20)).history
    assert history["step"] == [0, 0, 1, 1]
    assert [loss is None for loss in history["retain_loss"]] == [True, False, True, False]
    assert history["forget_loss"][0] < 0
    assert history["retain_loss"][1] > 0


@pytest.mark.numeric
def test_confident_samples_are_not_lost():
    """Where CE rounds to zero in float32 the ascent still has a finite, non-zero gradient."""
    model = trained()
    with torch.no_grad():
        model.layers[4].weight *= 5
        model.layers[4].bias *= 5
    history = unlearn(model, split(), SFRon(epochs=1, max_norm=None)).history
    assert history["forget_norm"][0] > 0


def test_its_cost_counts_the_fisher_diagonals():
    assert SFRon(epochs=2).gradients(split()) == WS(epochs=2).gradients(split()) + 120
    assert SFRon(epochs=2, samples=50).gradients(split()) == WS(epochs=2).gradients(split()) + 90


def test_another_task_is_refused():
    class Other:
        pass

    with pytest.raises(GradPivotError, match="SFRon only supports classification, but the task is a Other"):
        Loop().run(SFRon(), trained(), Other(), split())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"exponent": 1.5}, r"exponent is 1\.5"),
        ({"threshold": -1}, "threshold is -1"),
        ({"forget_rate": 0}, "forget_rate is 0"),
        ({"outer_rate": 0}, "outer_rate is 0"),
        ({"outer_rate": 2}, "outer_rate is 2"),
        ({"samples": 0}, "samples is 0"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        SFRon(**wrong)


def test_twenty_settings():
    assert len(SFRon.space()) == 20
