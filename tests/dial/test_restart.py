from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, ForgetSplit, Result, trace, unlearn
from gradpivot.dial import DialSettings, restart_epochs
from gradpivot.dial.ramp import target_degree
from gradpivot.errors import GradPivotError, NotReachedWarning
from gradpivot.loop import Loop
from gradpivot.runtime import isolated
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs
from memorised import doubt, memorised, noisy, records

METHOD = CUP(gamma=1.0, training_epochs=150, retain_batch_size=16)


@cache
def run(gamma: float, seed: int = 0) -> Result:
    method = CUP(gamma=gamma, training_epochs=150, retain_batch_size=16)
    return unlearn(memorised(), records(), method, seed=seed)


class TestRestart(MethodContract):
    """CUP on records: what holds for every method holds here."""

    method = CUP(gamma=1.0, training_epochs=60, retain_batch_size=16, epochs=1)
    least_ua = 0.0

    def split(self) -> ForgetSplit:
        return ForgetSplit.random(blobs(), blobs(seed=1), 0.2, validation=blobs(seed=2))


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_the_records_end_as_uncertain_as_held_out_data(seed):
    result, split = run(1.0, seed), records()
    start = doubt(memorised(), split.train, split.forget_indices)
    held_out = doubt(memorised(), noisy(400, 1))
    reached = doubt(result.model, split.train, split.forget_indices)
    # Three standard errors of a mean over 48 records, each at most 1/2.
    assert reached == pytest.approx(held_out, abs=3 * 0.5 / np.sqrt(48))
    assert reached > start + 0.1
    assert result.missed is None


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_a_smaller_gamma_is_a_point_on_the_way(seed):
    for gamma in (0.25, 0.5, 0.75):
        history = run(gamma, seed).history
        start, most = history["start"][-1], history["most"][-1]
        assert most > start + 0.1
        assert history["asked"][-1] == pytest.approx(start + (most - start) * target_degree(gamma))
        assert history["reached"][-1] == pytest.approx(history["asked"][-1], abs=0.05 * (most - start))
        assert 0 < history["landed"][-1] <= 1


def test_gamma_0_is_the_original():
    assert run(0.0).is_original


def test_no_step_sees_the_forget_set():
    """At γ = 1 the end of training is the result, so other samples in the forget set give the same weights."""
    split = records()
    points, labels = (part.clone() for part in split.train.tensors)
    forgotten = torch.as_tensor(np.array(split.forget_indices))
    points[forgotten] += 0.1 * torch.randn(len(forgotten), 12, generator=torch.Generator().manual_seed(0))
    other = ForgetSplit.by_index(TensorDataset(points, labels), noisy(400, 1), split.forget_indices)
    same = ForgetSplit.by_index(split.train, noisy(400, 1), split.forget_indices)
    results = [unlearn(memorised(), one, METHOD) for one in (same, other)]
    assert [result.history["landed"][-1] for result in results] == [1, 1]
    for first, second in zip(*(result.model.parameters() for result in results), strict=True):
        assert torch.equal(first, second)


def test_at_gamma_1_nothing_of_the_original_weights_is_left():
    """Another original with the same certainty about its training data ends as the same model."""
    other = memorised()
    with torch.no_grad():
        for weights in (other[0].weight, other[0].bias, other[2].weight.T):
            weights.copy_(weights.flip(0))
    results = [unlearn(model, records(), METHOD) for model in (memorised(), other)]
    assert [result.history["landed"][-1] for result in results] == [1, 1]
    for first, second in zip(*(result.model.parameters() for result in results), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_new_weights_are_not_those_that_training_from_the_same_seed_starts_with():
    starts = []
    for start in (Loop.initialise, lambda loop, model: Loop.shrink_and_perturb(loop, model, 0.0)):
        model = memorised()
        with isolated(0):
            start(Loop(seed=0), model)
        starts.append(model[0].weight)
    assert not torch.equal(*starts)


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_weights_that_still_know_the_records_are_reported(seed):
    """A frozen layer, or a factory that returns a trained model."""
    frozen = memorised()
    frozen[0].requires_grad_(False)

    def almost() -> nn.Module:
        model = memorised()
        with torch.no_grad():
            model[2].bias.add_(1e-3)
        return model

    for model, factory in ((frozen, None), (memorised(), almost)):
        with pytest.warns(NotReachedWarning, match="kept weights still know"):
            unlearn(model, records(), METHOD, seed=seed, factory=factory)


def test_a_factory_that_returns_the_trained_weights_is_refused():
    with pytest.raises(GradPivotError, match="with its trained weights"):
        unlearn(memorised(), records(), METHOD, factory=memorised)


def test_assumed_settings_of_training_are_named():
    result = unlearn(memorised(), records(), CUP(gamma=1.0, training_lr=0.1))
    assert "assumed training_epochs 30: set them" in result.note


def test_gamma_1_may_be_rounded():
    exact, rounded = (unlearn(memorised(), records(), CUP(gamma=g, training_epochs=8)) for g in (1.0, 1 - 1e-12))
    for first, second in zip(*(one.model.parameters() for one in (exact, rounded)), strict=True):
        assert torch.equal(first, second)


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_points_of_a_quick_trace_are_those_of_runs_below_gamma_1(seed):
    """They lie on the line from a run that keeps some of the old weights; only the run itself may be γ = 1."""
    found = trace(memorised(), records(), METHOD, quick=True, points=5, seed=seed)
    methods = [result.method for result in found.results]
    assert [method.shrink for method in methods] == [DialSettings().shrink] * len(methods)
    assert all(method.gamma < 1 for method in methods[:-1])


def test_earlier_records_are_not_called_relearned_by_a_restart():
    """No step sees them; what the new weights know of them they know of unseen data."""
    data, test = noisy(240, 0), noisy(400, 1)
    for seed in range(3):
        first, second = np.arange(25), np.arange(25, 45)
        start = unlearn(memorised(), ForgetSplit.by_index(data, test, first), METHOD, seed=seed).model
        split = ForgetSplit.by_index(data, test, second, already_forgotten=first)
        result = unlearn(start, split, METHOD, seed=seed + 1)
        assert result.already_forgotten.excluded
        assert result.relearned is None


def test_frozen_weights_stay():
    model = memorised()
    model[0].requires_grad_(False)
    result = unlearn(model, records(), METHOD)
    assert torch.equal(result.model[0].weight, model[0].weight)
    assert not torch.equal(result.model[2].weight, model[2].weight)


def test_statistics_of_batchnorm_are_those_of_the_retained_data():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    split = records()
    result = unlearn(fitted(model, split.train), split, METHOD)
    points = split.train.tensors[0]
    with torch.no_grad():
        kept = result.model[0](points[torch.as_tensor(np.array(split.retain_indices))])
    torch.testing.assert_close(result.model[1].running_mean, kept.mean(0), rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("default::gradpivot.NotReachedWarning")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("original", ["overfitted", "calibrated"])
def test_a_run_that_does_not_recover_is_walked_back_and_says_so(original, seed):
    """A restart without training destroys the model; the budget on held-out data doesn't allow that.

    An overfitted model has a high loss on held-out data, so a destroyed one would look better by that.
    """
    split = records(validation=noisy(400, 2))
    model = memorised() if original == "overfitted" else fitted(nn.Linear(12, 2), split.train)
    method = CUP(gamma=1.0, training_epochs=1, training_lr=1e-12)
    with pytest.warns(NotReachedWarning, match="raise training_epochs"):
        result = unlearn(model, split, method, seed=seed)
    points, labels = noisy(400, 2).tensors
    with torch.no_grad():
        before, after = ((one(points).argmax(1) != labels).double().mean() for one in (model, result.model))
    assert after <= before + 0.05 + 1e-6
    assert "raise training_epochs" in result.missed
    assert result.history["landed"][-1] < 1


def test_a_restart_walked_back_says_so_for_records_that_need_no_more_uncertainty():
    """There is no degree to miss: the labels of these records are wrong, and the model never knew them."""
    points, labels = noisy(240, 0).tensors
    chosen = np.arange(40)
    split = ForgetSplit.by_index(
        TensorDataset(points, torch.cat([(points[:40, 0] <= 0).long(), labels[40:]])), noisy(400, 1), chosen,
        validation=noisy(400, 2),
    )  # fmt: skip
    torch.manual_seed(0)
    model = fitted(nn.Linear(12, 2), TensorDataset(points[40:], labels[40:]))
    with pytest.warns(NotReachedWarning, match="raise training_epochs"):
        result = unlearn(model, split, CUP(gamma=1.0, training_epochs=1, training_lr=1e-12))
    assert result.history["most"][-1] - result.history["start"][-1] < 0.01
    assert "of the line to the end of the restart" in result.missed


def fitted(model: nn.Module, data: TensorDataset, steps: int = 100) -> nn.Module:
    """The model trained on all of the data."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    points, labels = data.tensors
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
    return model.eval()


def test_it_stops_once_the_retain_set_is_back():
    """Records that are easy to learn again: far fewer passes than the ceiling."""
    split = ForgetSplit.random(blobs(), blobs(seed=1), 0.2, validation=blobs(seed=2))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    forgotten = torch.as_tensor(np.array(split.forget_indices))
    fitted(model, TensorDataset(*(part[forgotten] for part in split.train.tensors)))
    result = unlearn(model, split, CUP(gamma=1.0, training_epochs=400, retain_batch_size=16))
    assert result.note is None or "ceiling" not in result.note
    assert len(result.history.get("step", ())) < 88 * 6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.numeric
def test_a_second_request_does_not_teach_the_first_records_again(seed):
    data, test = noisy(240, 0), noisy(400, 1)
    first, second, rest = (np.arange(240)[part] for part in (slice(25), slice(25, 45), slice(45, None)))
    start = unlearn(memorised(), ForgetSplit.by_index(data, test, first), METHOD, seed=seed).model
    split = ForgetSplit.by_index(data, test, second, already_forgotten=first)
    result = unlearn(start, split, METHOD, seed=seed)
    gap = doubt(start, data, first) - doubt(start, data, rest)
    assert gap > 0.1
    assert doubt(result.model, data, first) - doubt(result.model, data, rest) > 0.5 * gap


def test_the_ceiling_is_a_share_of_training():
    assert [restart_epochs(epochs) for epochs in (1, 30, 200)] == [1, 8, 50]


def test_shrink_1_steers_by_gradients():
    assert "intensity" in unlearn(memorised(), records(), CUP(gamma=1.0, shrink=1, epochs=1)).history
    assert "intensity" not in run(1.0).history


def test_the_callers_model_is_unchanged():
    model = memorised()
    before = copy.deepcopy(model.state_dict())
    unlearn(model, records(), METHOD)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_a_record_that_is_harder_than_held_out_data_is_deleted_too(gamma):
    """It may be memorised all the same, and nothing steers by its uncertainty."""
    split = records(validation=noisy(400, 2))
    model = fitted(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)), split.train, steps=60)
    with torch.no_grad():
        points, labels = split.train.tensors
        unsure = 1 - model(points).softmax(1).gather(1, labels[:, None])[:, 0]
    hardest = int(unsure.argmax())
    alone = ForgetSplit.by_index(split.train, split.test, [hardest], validation=noisy(400, 2))
    result = unlearn(model, alone, CUP(gamma=gamma, training_epochs=150, retain_batch_size=16))
    assert not result.is_original
    assert result.missed is None


def test_saliency_cannot_be_promised():
    with pytest.raises(GradPivotError, match="needs shrink=1"):
        unlearn(memorised(), records(), CUP(saliency=0.1))
