"""The second request: what the first one deleted stays where it is, and the new records are steered by themselves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from gradpivot import CUP, ForgetSplit, Result, unlearn
from gradpivot.dial.held import Held
from gradpivot.dial.settings import DialSettings
from gradpivot.loop.loop import Loop
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.vae import Autoencoding
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained
from memorised import doubt, memorising, noisy

METHOD = CUP(gamma=1.0, shrink=1, epochs=40, lr=0.02)
FIRST, SECOND, REST = (np.arange(240)[part] for part in (slice(25), slice(25, 45), slice(45, None)))


def split_of(seed: int, indices: np.ndarray, **options) -> ForgetSplit:
    return ForgetSplit.by_index(noisy(240, seed), noisy(400, seed + 100), indices, **options)


@cache
def after_the_first_request(seed: int) -> nn.Module:
    return unlearn(memorising(seed), split_of(seed, FIRST), METHOD, seed=seed).model


@cache
def second_request(seed: int, told: bool) -> Result:
    earlier = FIRST if told else None
    split = split_of(seed, SECOND, already_forgotten=earlier)
    return unlearn(after_the_first_request(seed), split, METHOD, seed=seed)


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_a_second_request_re_learns_the_first_records_unless_it_knows_of_them(seed):
    data = noisy(240, seed)
    start = after_the_first_request(seed)
    gap = doubt(start, data, FIRST) - doubt(start, data, REST)
    assert gap > 0.2

    def lost(told: bool) -> float:
        """Share of what the first request opened that the second one closes."""
        return (doubt(start, data, FIRST) - doubt(second_request(seed, told).model, data, FIRST)) / gap

    assert lost(told=False) > 0.3
    assert lost(told=True) < 0.2


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_the_new_records_are_steered_by_themselves(seed):
    result = second_request(seed, told=True)
    asked, reached = (result.history[name][-1] for name in ("asked", "reached"))
    assert reached == pytest.approx(asked, rel=0.15)
    assert doubt(result.model, noisy(240, seed), SECOND) == pytest.approx(reached, abs=1e-6)
    assert result.scores.ra > 0.9


@pytest.mark.numeric
def test_what_happened_to_them_is_reported():
    assert second_request(0, told=False).already_forgotten is None
    result, data = second_request(0, told=True), noisy(240, 0)
    found = result.already_forgotten
    assert found.n == 25
    assert found.before == pytest.approx(doubt(after_the_first_request(0), data, FIRST))
    assert found.after == pytest.approx(doubt(result.model, data, FIRST))
    assert found.retained == pytest.approx(doubt(after_the_first_request(0), data, REST))
    assert not found.relearned
    assert result.relearned is None


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    class Second(MethodContract):
        method = CUP(gamma=1.0, epochs=4, batch_size=10)

        def split(self) -> ForgetSplit:
            return ForgetSplit.by_class(blobs(), blobs(seed=1), 0, already_forgotten=np.arange(0, 120, 5))

    Second().test_interrupted_and_resumed_equals_uninterrupted(tmp_path)


def held(model: nn.Module, task=None) -> Held | None:
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0, already_forgotten=[1, 2, 4])
    return Held.of(model, task or Classification(), split, Loop(), DialSettings(held_batch=2))


def test_its_loss_is_the_divergence_from_the_original_in_eval_mode():
    model = trained()
    loss = held(model)
    statistics = [buffer.clone() for buffer in model.buffers()]
    model.train()
    for step in range(4):
        assert loss.loss(step).item() == pytest.approx(0, abs=1e-6)
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(statistics, model.buffers(), strict=True))
    with torch.no_grad():
        model.layers[-1].bias.add_(torch.tensor([9.0, 0.0, 0.0]))
    moved = loss.loss(0)
    assert moved.item() > 0.01
    moved.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_masked_class_gives_a_finite_loss():
    class Masked(TinyNet):
        def forward(self, features):
            return super().forward(features).index_fill(1, torch.tensor([0]), -torch.inf)

    model = Masked()
    model.load_state_dict(trained().state_dict())
    loss = held(model).loss(0)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_nothing_is_held_without_them_or_without_predicted_classes():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    assert Held.of(trained(), Classification(), split, Loop(), DialSettings()) is None
    assert held(trained(), Autoencoding()) is None
