from __future__ import annotations

import dataclasses

import pytest
import torch

from gradpivot import CUP, GA, RL, WS, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestRL(MethodContract):
    # The optimum has a confidence of a third in each of three classes, and the last labels drawn decide which is
    # highest: UA is that of a coin. What is certain, the confidence, is tested below.
    method = RL(lr=0.02, epochs=15)
    least_ua = 0.1


class TestSequentialRL(MethodContract):
    method = RL(lr=0.02, epochs=15, order="sequential")
    least_ua = 0.1  # undecided is not misclassified


class TestRLAsPrinted(MethodContract):
    method = RL.protocol("paper", lr=0.02, epochs=15, batch_size=8)
    least_ua = 0.5


class TestCUPWithRandomLabels(MethodContract):
    method = CUP(gamma=0.9, lr=0.02, epochs=15, objective="random_label")
    least_ua = 0.1  # as RL


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


@pytest.mark.parametrize("method", [RL(lr=0.02, epochs=15), RL(lr=0.005, epochs=15, order="sequential")])
@pytest.mark.numeric
def test_the_model_ends_undecided_about_what_it_forgot(method):
    """Uniform labels over k = 3 classes: the true class's confidence goes from nearly 1 to about 1/3."""
    features, labels = blobs().tensors
    for seed in range(3):
        model = unlearn(trained(), split(), method, seed=seed).model
        confidence = model(features[labels == 0]).softmax(1)[:, 0].mean().item()
        assert confidence == pytest.approx(1 / 3, abs=0.2)
    assert trained()(features[labels == 0]).softmax(1)[:, 0].mean().item() > 0.9


def test_paired_is_the_weighted_sum_with_random_labels():
    """RL in its default order is WS with w_f = w_r = 1 on the random-label objective, to the last bit."""
    mine = unlearn(trained(), split(), RL(epochs=2, lr=0.01))
    theirs = unlearn(trained(), split(), WS(epochs=2, lr=0.01, objective="random_label"))
    assert mine.history == theirs.history
    for a, b in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a, b)


class Recording(Classification):
    """Remembers the order and the size of what the losses were taken on."""

    def __init__(self):
        object.__setattr__(self, "seen", [])
        super().__init__()

    def retain_loss(self, model, batch):
        self.seen.append(("retain", batch[1].tolist()))
        return super().retain_loss(model, batch)

    def forget_loss(self, model, batch, objective):
        self.seen.append(("forget", batch[1].tolist()))
        return super().forget_loss(model, batch, objective)


def test_sequential_goes_through_all_of_forget_then_all_of_retain_in_each_epoch():
    task = Recording()
    method = RL(order="sequential", epochs=2, batch_size=16, retain_batch_size=24)
    Loop().run(method, trained(), task, split())
    epoch = ["forget"] * 3 + ["retain"] * 4
    assert [side for side, _ in task.seen] == 2 * epoch
    for start in (0, 7):
        sizes = [len(labels) for _, labels in task.seen[start : start + 7]]
        assert sizes == [16, 16, 8, 24, 24, 24, 8]
        labels = [label for _, some in task.seen[start : start + 7] for label in some]
        assert labels[:40] == [0] * 40
        assert sorted(labels[40:]) == [1] * 40 + [2] * 40


def test_sequential_steps_have_one_side_each():
    history = unlearn(trained(), split(), RL(order="sequential", epochs=1, batch_size=40)).history
    assert history["step"] == [0, 1, 2]
    assert [loss is None for loss in history["forget_loss"]] == [False, True, True]
    assert [loss is None for loss in history["retain_loss"]] == [True, False, False]
    assert [w > 0 for w in history["forget_weight"]] == [True, False, False]


def test_sequential_recalibrates_on_retain_data():
    kept, renewed = (
        unlearn(trained(), split(), RL(order="sequential", epochs=1, batchnorm=policy, batch_size=80)).model
        for policy in ("train", "recalibrate")
    )
    for a, b in zip(kept.parameters(), renewed.parameters(), strict=True):
        assert torch.equal(a, b)
    renewed.eval()
    features, labels = blobs().tensors
    expected = renewed.layers[0](features[labels != 0]).mean(0)
    torch.testing.assert_close(renewed.layers[1].running_mean, expected, rtol=1e-3, atol=1e-3)


def test_settings():
    assert "objective" not in {f.name for f in dataclasses.fields(RL)}
    assert [m.lr for m in RL.space()] == [m.lr for m in GA.space()]
    method = RL.protocol("paper")
    assert (method.max_norm, method.batchnorm, method.weight_decay, method.batch_size) == (None, "train", 5e-4, 256)
    with pytest.raises(GradPivotError, match="choose one of paired, sequential"):
        RL(order="random")
