from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from gradpivot import CUP, Classification, ForgetSplit
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.loop.loop import Loop
from gradpivot.loop.saliency import _largest, saliency_mask
from gradpivot.tasks.objectives import objective
from gradpivot.testing.problems import blobs, trained

TASK = Classification()


def forget_data(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    features, labels = blobs().tensors
    return features[labels == 0].to(dtype), labels[labels == 0]


def batches_of(*sizes: int) -> list[tuple[tuple[torch.Tensor, torch.Tensor], int]]:
    features, labels = forget_data()
    pairs = zip(features.split(sizes), labels.split(sizes), strict=True)
    return [((x, y), len(y)) for x, y in pairs]


def by_sample(model: nn.Module) -> torch.Tensor:
    """|Σ∇(−CE)| with one autograd call per sample."""
    model.eval()
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for x, y in zip(*forget_data(), strict=True):
        minus_ce = model(x[None]).log_softmax(1)[0, y]
        total += torch.cat([g.reshape(-1) for g in torch.autograd.grad(minus_ce, list(model.parameters()))])
    return total.abs()


def flat(masks: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([m.reshape(-1) for m in masks])


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("sizes", [(40,), (20, 20), (1, 39)])
def test_equals_the_sum_over_samples(share, sizes):
    model = trained().double()
    saliency = by_sample(model)
    chosen = flat(saliency_mask(model, TASK, batches_of(*sizes), share))
    assert int(chosen.sum()) == round(share * len(saliency))
    if share < 1:
        assert saliency[chosen].min() >= saliency[~chosen].max() * (1 - 1e-9)


def test_masks_are_boolean_and_shaped_like_the_weights():
    model = trained().double()
    for m, p in zip(saliency_mask(model, TASK, batches_of(40), 0.5), model.parameters(), strict=True):
        assert m.dtype == torch.bool
        assert m.shape == p.shape


def test_dropout_and_batchnorm_do_not_matter_and_stay_as_they_are():
    still, moving = trained().double(), trained().double().train()
    moving.layers[1].eval()
    modes, state = ([m.training for m in moving.modules()], {k: v.clone() for k, v in moving.state_dict().items()})
    first, second = (flat(saliency_mask(m, TASK, batches_of(8, 32), 0.3)) for m in (still, moving))
    assert torch.equal(first, second)
    assert [m.training for m in moving.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in moving.state_dict().items())
    assert all(p.grad is None for p in moving.parameters())


def test_summed_before_the_absolute_value():
    """Two samples whose gradients cancel in one weight: it is not salient, however large each of them is."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    data = (torch.tensor([[5.0, 1.0], [-5.0, 1.0]], dtype=torch.float64), torch.tensor([0, 0]))
    (chosen,) = saliency_mask(model, TASK, [(data, 2)], 0.5)
    assert chosen.tolist() == [[False, True], [False, True]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_exactly_as_many_as_asked_and_the_first_of_equals(values, data):
    count = data.draw(st.integers(1, len(values)))
    chosen = _largest(torch.tensor(values, dtype=torch.float32), count)
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert chosen.nonzero()[:, 0].tolist() == sorted(expected)


def test_masks_of_growing_shares_are_nested():
    masks = [flat(saliency_mask(trained().double(), TASK, batches_of(40), s)) for s in (0.1, 0.4, 0.8, 1.0)]
    for small, large in pairwise(masks):
        assert bool((small <= large).all())


def test_a_weight_that_the_loss_does_not_reach_is_chosen_last():
    class WithSpare(nn.Module):
        def __init__(self):
            super().__init__()
            self.spare = nn.Parameter(torch.ones(7, dtype=torch.float64))
            self.net = trained().double()

        def forward(self, x):
            return self.net(x)

    model = WithSpare()
    weights = sum(p.numel() for p in model.parameters())
    reached = int((by_sample(model.net) > 0).sum())
    chosen = saliency_mask(model, TASK, batches_of(40), reached / weights)
    assert not chosen[0].any()


def test_what_cannot_be_done_is_explained():
    with pytest.raises(GradPivotError, match="> 0 and ≤ 1"):
        saliency_mask(trained().double(), TASK, batches_of(40), 0.0)
    with pytest.raises(GradPivotError, match=r"none of 163 weights; use at least 0\.006"):
        saliency_mask(trained().double(), TASK, batches_of(40), 1e-3)
    features, labels = forget_data()
    with pytest.raises(NonFiniteError, match="is nan"):
        saliency_mask(trained().double(), TASK, [((features * math.nan, labels), 40)], 0.5)


@pytest.mark.numeric
def test_half_precision_is_summed_in_single():
    model = trained().to(torch.bfloat16)
    batches = [((x[None].bfloat16(), y[None]), 1) for x, y in zip(*forget_data(), strict=True)]
    chosen = flat(saliency_mask(model, TASK, batches, 0.3))
    exact = by_sample(trained().double())
    overlap = int((chosen & (exact >= exact.sort(descending=True).values[int(chosen.sum()) - 1])).sum())
    assert overlap >= 0.9 * int(chosen.sum())


def test_both_gradients_and_their_gram_matrix_are_masked():
    """The loop's gradients are the plain ones times the mask, on both sides."""
    seen = {}

    class Looking:
        def __init__(self, share):
            self.share = share

        def unlearn(self, model, task, split, loop):
            batch = next(loop.paired_batches(model, task, split, CUP(saliency=self.share, epochs=1)))
            seen[self.share] = loop.gradients(
                forget=lambda: task.forget_loss(model, batch.forget, objective("negative_ce")),
                retain=lambda: task.retain_loss(model, batch.retain),
            )

    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    for share in (None, 0.3):
        Loop().run(Looking(share), trained(), TASK, split)
    data = forget_data(torch.float32)
    mask = saliency_mask(trained(), TASK, [(data, 40)], 0.3)
    for side in ("forget", "retain"):
        pairs = zip(getattr(seen[None], side), getattr(seen[0.3], side), mask, strict=True)
        for whole, masked, inside in pairs:
            torch.testing.assert_close(masked, whole * inside, rtol=1e-5, atol=1e-7)
    inner = sum(float((f.double() * r.double()).sum()) for f, r in zip(seen[0.3].forget, seen[0.3].retain, strict=True))
    assert seen[0.3].gram.fr == pytest.approx(inner, rel=1e-9)


def test_a_mask_of_ones_own_restricts_any_method():
    """``loop.restrict`` before the batches: only the last layer may change."""

    class LastLayer:
        def unlearn(self, model, task, split, loop):
            loop.restrict(model, [torch.full(p.shape, n.startswith("layers.4")) for n, p in model.named_parameters()])
            CUP(lr=0.02, epochs=2, weight_decay=0.1).unlearn(model, task, split, loop)

    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    loop = Loop()
    changed = loop.run(LastLayer(), trained(), TASK, split).model
    for (name, old), new in zip(trained().named_parameters(), changed.parameters(), strict=True):
        assert torch.equal(old, new) != name.startswith("layers.4")
    free = loop.run(CUP(lr=0.02, epochs=1), trained(), TASK, split).model
    assert not torch.equal(next(free.parameters()), next(trained().parameters()))
    with pytest.raises(GradPivotError, match="masks for 6 parameters"):
        loop.restrict(trained(), [])
