from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot import IU, SSD, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestSSD(MethodContract):
    # It trains nothing, and a network of 163 weights need not have any of one blob's own.
    method = SSD(alpha=2.5, dampening=0.1)
    least_ua = 0.0
    least_ra = 0.75


class TestSSDOnFewSamples(MethodContract):
    method = SSD(alpha=2.0, samples=20)
    least_ua = 0.0
    least_ra = 0.75


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def by_hand(model: nn.Module, of: torch.Tensor) -> list[torch.Tensor]:
    """Mean squared gradient of single samples, in float64."""
    inputs, labels = blobs().tensors
    model = model.double()
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for i in of.tolist():
        loss = nn.functional.cross_entropy(model(inputs[i : i + 1].double()), labels[i : i + 1])
        for square, gradient in zip(total, torch.autograd.grad(loss, parameters), strict=True):
            square += gradient**2
    return [square / len(of) for square in total]


@pytest.mark.parametrize(("alpha", "dampening"), [(1.5, 1.0), (1.2, 0.2), (1.0, 5.0)])
def test_only_selected_weights_change_and_by_the_formula(alpha, dampening):
    """I_f > α·I_D: times min(λ·I_D/I_f, 1), with I_D over all 120 samples; the others are bit-identical."""
    labels = blobs().tensors[1]
    forget = by_hand(trained(), (labels == 0).nonzero()[:, 0])
    everything = by_hand(trained(), torch.arange(120))
    result = unlearn(trained(), split(), SSD(alpha=alpha, dampening=dampening)).model
    changed = 0
    for before, after, f, d in zip(trained().parameters(), result.parameters(), forget, everything, strict=True):
        factor = torch.where(f > alpha * d, (dampening * d / f).clamp(max=1.0), 1.0)
        # A ratio that equals α up to rounding may fall on either side.
        clear = ((f / d - alpha).abs() > 1e-3) | (f == 0)
        kept = clear & (factor == 1)
        assert torch.equal(before[kept], after[kept])
        torch.testing.assert_close(after[clear], (before * factor.float())[clear], rtol=1e-3, atol=1e-6)
        changed += int((before != after).sum())
    assert changed > 0 or dampening > alpha


def test_the_factor():
    forget = torch.tensor([0.0, 1.0, 2.0, 2.1, 10.0, 1.0])
    everything = torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    assert SSD(alpha=2.0).factor(forget, everything).tolist() == pytest.approx([1, 1, 1, 1 / 2.1, 0.1, 0])
    assert SSD(alpha=2.0, dampening=5.0).factor(forget, everything).tolist() == pytest.approx([1, 1, 1, 1, 0.5, 0])


@pytest.mark.parametrize("settings", [{"alpha": 3.0}, {"alpha": 1.0, "dampening": 3.0}])
def test_a_run_that_changes_nothing_says_so(settings):
    result = unlearn(trained(), split(), SSD(**settings))
    assert "no weight changed" in result.note
    assert "alpha below N/n_f = 3" in result.note
    for before, after in zip(trained().parameters(), result.model.parameters(), strict=True):
        assert torch.equal(before, after)


def test_a_smaller_alpha_changes_more():
    def changed(alpha: float) -> int:
        after = unlearn(trained(), split(), SSD(alpha=alpha)).model
        return sum(int((a != b).sum()) for a, b in zip(trained().parameters(), after.parameters(), strict=True))

    counts = [changed(alpha) for alpha in (2.5, 1.5, 1.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.numeric
def test_it_costs_the_forgotten_more_than_the_kept():
    def losses(model: nn.Module) -> tuple[float, float]:
        inputs, labels = blobs().tensors
        with torch.no_grad():
            each = nn.functional.cross_entropy(model.eval()(inputs), labels, reduction="none")
        return float(each[labels == 0].mean()), float(each[labels != 0].mean())

    (f0, r0), (f1, r1) = losses(trained()), losses(unlearn(trained(), split(), SSD(alpha=2.0)).model)
    assert f1 > f0
    assert f1 - f0 > r1 - r0


def test_frozen_weights_and_buffers_stay():
    model = trained()
    model.layers[4].requires_grad_(False)
    after = unlearn(model, split(), SSD(alpha=1.2, dampening=0.1)).model.state_dict()
    for name, value in model.state_dict().items():
        if name.startswith("layers.4") or "running" in name or "tracked" in name:
            assert torch.equal(value, after[name])


def test_the_seed_chooses_the_samples_if_there_is_a_choice():
    def run(seed: int, samples: int) -> list[torch.Tensor]:
        model = Loop(seed=seed).run(SSD(alpha=1.2, samples=samples), trained(), Classification(), split()).model
        return list(model.parameters())

    def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    assert same(run(1, 10), run(1, 10))
    assert not same(run(1, 10), run(2, 10))
    assert same(run(1, 80), run(2, 80))


def test_the_history_is_one_step_without_weights():
    history = unlearn(trained(), split(), SSD(alpha=1.5)).history
    assert history["step"] == [0]
    assert history["forget_weight"] == history["retain_weight"] == [0.0]
    assert history["step_norm"][0] > 0


def test_its_cost():
    assert SSD().gradients(split()) == IU().gradients(split()) + 120
    assert SSD(samples=50).gradients(split()) == IU().gradients(split()) + 90


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"alpha": 0}, "alpha is 0"), ({"dampening": -1}, "dampening is -1"), ({"samples": 0}, "samples is 0")],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        SSD(**wrong)


def test_twenty_settings():
    assert len(SSD.space()) == 20
