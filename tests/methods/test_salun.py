from __future__ import annotations

import pytest
import torch

from gradpivot import CUP, GA, RL, WS, Classification, ForgetSplit, SalUn, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.saliency import saliency_mask
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestSalUn(MethodContract):
    method = SalUn(lr=0.02, epochs=15)
    least_ua = 0.1  # as RL: the optimum is undecided between three classes


class TestSalUnAsPrinted(MethodContract):
    method = SalUn.protocol("paper", lr=0.02, epochs=15, batch_size=8)
    least_ua = 0.5


class TestSequentialSalUn(MethodContract):
    method = SalUn(lr=0.02, epochs=15, order="sequential", optimizer="adamw", weight_decay=0.1)
    least_ua = 0.1  # undecided is not misclassified


class TestCUPUnderAMask(MethodContract):
    method = CUP(gamma=0.9, lr=0.02, epochs=15, saliency=0.5, weight_decay=0.01, shrink=1)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def mask(share: float) -> list[torch.Tensor]:
    features, labels = blobs().tensors
    forgotten = (features[labels == 0], labels[labels == 0])
    return saliency_mask(trained(), Classification(), [(forgotten, 40)], share)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("kind", [SalUn, CUP, WS, GA])
@pytest.mark.numeric
def test_weights_outside_the_mask_are_bit_identical(kind, optimizer):
    method = kind(saliency=0.3, optimizer=optimizer, momentum=0.9, weight_decay=0.5, lr=0.02, epochs=3, max_norm=None)
    result = unlearn(trained(), split(), method)
    inside_changed = 0
    for old, new, inside in zip(trained().parameters(), result.model.parameters(), mask(0.3), strict=True):
        assert torch.equal(old[~inside], new[~inside])
        inside_changed += int((old != new)[inside].sum())
    assert inside_changed > 0.95 * sum(int(m.sum()) for m in mask(0.3))


def test_a_mask_of_everything_changes_nothing_about_the_run():
    whole, masked = (unlearn(trained(), split(), m) for m in (RL(epochs=2), SalUn(epochs=2, saliency=1.0)))
    assert whole.history == masked.history
    for a, b in zip(whole.model.parameters(), masked.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.numeric
def test_the_geometry_is_that_of_the_subspace():
    """Norms and the promise of the pivot are those of the masked gradients; plain SGD keeps it exactly there."""
    free, masked = (
        unlearn(trained(), split(), CUP(gamma=0.5, momentum=0, lr=0.01, epochs=2, saliency=share)).history
        for share in (None, 0.2)
    )
    assert masked["forget_norm"][0] < free["forget_norm"][0]
    assert max(*masked["delta_forget"], *masked["delta_retain"]) <= 1e-9


@pytest.mark.numeric
def test_frozen_parameters_are_no_part_of_the_share():
    model = trained()
    model.layers[0].requires_grad_(False)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    result = unlearn(model, split(), SalUn(saliency=0.5, lr=0.05, epochs=5))
    changed = sum(int((a != b).sum()) for a, b in zip(model.parameters(), result.model.parameters(), strict=True))
    assert 0.4 * trainable < changed <= round(0.5 * trainable)


def test_settings():
    assert len(SalUn.space()) == 20
    assert SalUn.protocol("paper").batchnorm == "train"
    for kind in (SalUn, CUP):
        for wrong in (0, 1.5, -0.1, float("nan")):
            with pytest.raises(GradPivotError, match=r"saliency is .*> 0 and ≤ 1"):
                kind(saliency=wrong)
    with pytest.raises(GradPivotError, match="none of 163 weights"):
        unlearn(trained(), split(), SalUn(saliency=1e-4))
