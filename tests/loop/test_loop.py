from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, WS, Classification, ForgetSplit, Retrain, unlearn
from gradpivot.data.order import cut, shuffled
from gradpivot.errors import GradPivotError
from gradpivot.loop.checkpoint import Checkpoint
from gradpivot.loop.loop import Loop
from gradpivot.loop.normalisation import apply_policy, preserved_statistics, recalibrate, recalibrate_over
from gradpivot.loop.optimizers import rate_factor
from gradpivot.runtime.parallel import Replicas
from gradpivot.testing.problems import blobs, trained


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def statistics(model: nn.Module) -> torch.Tensor:
    return model.layers[1].running_mean.clone()


@pytest.mark.parametrize(("policy", "changes"), [("frozen", False), ("train", True), ("recalibrate", True)])
def test_batchnorm_policies(policy, changes):
    result = unlearn(trained(), split(), CUP(batchnorm=policy, epochs=1))
    assert torch.equal(statistics(result.model), statistics(trained())) != changes


def test_recalibrated_statistics_are_the_average_over_what_is_given():
    model = trained()
    features = blobs(seed=7).tensors[0]
    model.train()
    batches = features.split(50)
    assert len(batches[-1]) == 20
    recalibrate(model, [(len(b), b) for b in batches], lambda m, x: m(x))
    expected = model.layers[0](features).mean(0)
    torch.testing.assert_close(statistics(model), expected, atol=1e-5, rtol=1e-4)
    assert model.layers[1].momentum == 0.1
    assert model.training


def test_statistics_taken_anew_do_not_depend_on_what_was_drawn_before():
    def noisy(model: nn.Module, batch) -> torch.Tensor:
        return model(batch[0] + torch.randn_like(batch[0])).sum()

    found = []
    for draws in (0, 3):
        model = trained()
        torch.manual_seed(draws)
        before = torch.get_rng_state()
        recalibrate_over(model, blobs(), np.arange(100), noisy, batch_size=64, seed=0)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(statistics(model))
    assert torch.equal(*found)


def test_kept_statistics_do_not_follow_a_pass_in_train_mode():
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.Linear(3, 2)).train()
    before = copy.deepcopy(model.state_dict())
    with preserved_statistics(model):
        loss = model(torch.randn(8, 3) + 5).square().sum()
    loss.backward()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model(torch.full((8, 3), 10.0))
    assert model[0].running_mean == pytest.approx([3.0] * 3)


@pytest.mark.parametrize("policy", ["frozen", "train"])
def test_the_level_of_what_is_kept_is_that_of_a_runs_batches(policy):
    model, method = trained(), CUP(batch_size=8, batchnorm=policy)
    model.layers[3].p = 0.0
    before = copy.deepcopy(model.state_dict())
    level = Loop().retain_level(model, Classification(), split(), method)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    apply_policy(model, policy)
    order = cut(shuffled(split().retain_indices, 0, "level"), 8)
    inputs, targets = blobs().tensors
    losses = [len(i) * nn.functional.cross_entropy(model(inputs[i]), targets[i]).item() for i in order]
    assert level == pytest.approx(sum(losses) / sum(map(len, order)), rel=1e-5)


def test_plain_training_recalibrates_too():
    """Retrain took the setting and trained as with ``train``."""
    kept, renewed = (
        unlearn(trained(), split(), Retrain(batchnorm=policy, epochs=1, batch_size=80)).model
        for policy in ("train", "recalibrate")
    )
    assert torch.equal(next(kept.parameters()), next(renewed.parameters()))
    features, labels = blobs().tensors
    expected = renewed.layers[0](features[labels != 0]).mean(0)
    torch.testing.assert_close(statistics(renewed), expected, atol=1e-5, rtol=1e-4)


def test_retain_batches_are_no_larger_than_the_retain_set():
    """Three samples are there to retain: one of two processes would get one, whatever the batch size says."""
    features, labels = blobs().tensors
    few = torch.cat([torch.where(labels == 0)[0], torch.where(labels == 2)[0][:3]])
    small = ForgetSplit.by_class(TensorDataset(features[few], labels[few]), blobs(seed=1), 0)
    recipe = CUP(batchnorm="train", batch_size=8, retain_batch_size=8)
    batches = Loop(replicas=Replicas(0, 2)).paired_batches(trained(), Classification(), small, recipe)
    with pytest.raises(GradPivotError, match="the smallest batch has 3 samples"):
        next(batches)


def test_frozen_batchnorm_leaves_dropout_in_train_mode():
    model = trained()
    apply_policy(model, "frozen")
    assert not model.layers[1].training
    assert model.layers[3].training


def test_telemetry_of_what_the_optimiser_really_did():
    """⟨Δθ,f⟩ and ⟨Δθ,r⟩ of plain SGD are −λ⟨g,f⟩ and −λ⟨g,r⟩, which the Gram matrix knows."""
    history = unlearn(trained(), split(), WS(forget_weight=0.3, momentum=0, lr=0.01, epochs=1, max_norm=None)).history
    for i in range(len(history["step"])):
        ff, rr = history["forget_norm"][i] ** 2, history["retain_norm"][i] ** 2
        fr = history["cosine"][i] * history["forget_norm"][i] * history["retain_norm"][i]
        a, b = history["forget_weight"][i], history["retain_weight"][i]
        scale = 0.01 * history["step_norm"][i]
        assert history["delta_forget"][i] == pytest.approx(-0.01 * (a * ff + b * fr), abs=1e-4 * scale * math.sqrt(ff))
        assert history["delta_retain"][i] == pytest.approx(-0.01 * (a * fr + b * rr), abs=1e-4 * scale * math.sqrt(rr))


@pytest.mark.numeric
def test_what_weight_decay_does_to_the_promise_shows_in_the_telemetry():
    """The pivot raises neither loss; weight decay acts after it and does."""
    kept, broken = (
        unlearn(trained(), split(), CUP(gamma=0.5, dial="angle", weight_decay=decay, lr=0.01, epochs=2)).history
        for decay in (0.0, 3.0)
    )
    assert max(*kept["delta_forget"], *kept["delta_retain"]) <= 0
    assert max(*broken["delta_forget"], *broken["delta_retain"]) > 0


def test_a_float64_model_takes_the_same_steps():
    (x, y), model = blobs().tensors, trained().double()
    double = ForgetSplit.by_class(torch.utils.data.TensorDataset(x.double(), y), blobs(seed=1), 0)
    shared = {"lr": 0.02, "epochs": 1, "momentum": 0}
    runs = [Loop().run(CUP(**shared), m, Classification(), s).model for m, s in ((trained(), split()), (model, double))]
    # Dropout draws its masks in the dtype of the model, so the paths differ a little.
    for single, exact in zip(*(run.parameters() for run in runs), strict=True):
        torch.testing.assert_close(single.double(), exact, atol=0.1, rtol=0.1)


def test_learning_rate_schedules():
    assert [rate_factor("cosine", p) for p in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])
    assert rate_factor("constant", 0.7) == 1
    with pytest.raises(GradPivotError, match="constant, cosine"):
        rate_factor("linear", 0)


def test_one_cycle_rises_for_a_fifth_and_falls_to_zero():
    factors = [rate_factor("one_cycle", p / 100) for p in range(101)]
    assert factors[0] == pytest.approx(0.04)
    assert factors[20] == max(factors) == pytest.approx(1)
    assert factors[100] == 0
    # Two straight lines: constant differences on either side of the peak.
    rises = [b - a for a, b in pairwise(factors)]
    assert rises[:20] == pytest.approx([0.96 / 20] * 20)
    assert rises[20:] == pytest.approx([-1 / 80] * 80)


def test_opposed_gradients_stop_even_momentum_and_weight_decay():
    """L_f = −L_r on the same batch: Pareto-stationary at every point, so nothing may move."""
    same = ForgetSplit.by_index(blobs(), blobs(seed=1), [0])

    class Opposed(Classification):
        def forget_loss(self, model, batch, objective):
            model.eval()
            return -super().retain_loss(model, (blobs().tensors[0], blobs().tensors[1]))

        def retain_loss(self, model, batch):
            model.eval()
            return super().retain_loss(model, (blobs().tensors[0], blobs().tensors[1]))

    result = unlearn(trained(), same, CUP(shrink=1, weight_decay=0.1, lr=0.1), task=Opposed())
    assert set(result.history["pareto_stationary"]) == {True}
    for old, new in zip(trained().parameters(), result.model.parameters(), strict=True):
        assert torch.equal(old, new)


def test_a_weight_that_becomes_infinite_is_put_back():
    method = WS.protocol("paper", lr=1e30, epochs=5, batch_size=8, weight_decay=0)
    result = unlearn(trained(), split(), method)
    assert result.diverged is not None
    assert all(bool(p.isfinite().all()) for p in result.model.state_dict().values())


def test_steps_outside_a_loop_are_explained():
    with pytest.raises(GradPivotError, match="inside"):
        Loop().gradients(forget=lambda: torch.zeros(()))


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(GradPivotError, match="damaged"):
        unlearn(trained(), split(), CUP(epochs=1), checkpoint=path)
    keeper = Checkpoint(path, "another run", 0)
    keeper.save_if_due(lambda: {"step": 0})
    with pytest.raises(GradPivotError, match="another run"):
        unlearn(trained(), split(), CUP(epochs=1), checkpoint=path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GradPivotError, match="damaged"):
        unlearn(trained(), split(), CUP(epochs=1), checkpoint=path)


def test_a_checkpoint_cannot_run_code(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("code ran on loading",))

    path = tmp_path / "checkpoint.pt"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(GradPivotError, match="damaged"):
        Checkpoint(path, "x", 0).load()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.numeric
def test_optimisers_and_schedules(optimizer):
    result = unlearn(trained(), split(), CUP(optimizer=optimizer, schedule="cosine", lr=0.02, epochs=8, gamma=0.8))
    assert result.scores.ua > 0.5


def test_a_model_with_nothing_to_train_is_explained():
    with pytest.raises(GradPivotError, match="no trainable parameter"):
        unlearn(trained().requires_grad_(False), split(), CUP(epochs=1))
    with pytest.raises(GradPivotError, match=r"torch\.nn\.Module"):
        unlearn(lambda x: x, split(), CUP())


def test_nan_weights_are_refused_by_name():
    model = trained()
    with torch.no_grad():
        model.layers[0].weight[0, 0] = math.nan
    with pytest.raises(GradPivotError, match=r"weight layers\.0\.weight contains NaN"):
        unlearn(model, split(), CUP(epochs=1))


def test_infinite_weights_that_cancel_are_refused_too():
    model = trained()
    with torch.no_grad():
        model.layers[0].weight[0, 0] = math.inf
        model.layers[0].weight[0, 1] = -math.inf
    with pytest.raises(GradPivotError, match="contains NaN"):
        unlearn(model, split(), CUP(epochs=1))


def test_a_run_that_diverges_on_its_very_last_step_is_diverged():
    method = CUP(lr=1e30, epochs=1, batch_size=1000, dial="angle", objective="negative_ce")
    result = unlearn(trained(), split(), method)
    assert result.diverged == {"step": 0, "reason": "the outputs are not finite after the last step"}
    for old, new in zip(trained().parameters(), result.model.parameters(), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("wrong", [CUP, "cup", 3])
def test_what_is_no_method_is_explained(wrong):
    with pytest.raises(GradPivotError, match=r"such as CUP\(gamma=0.5\)"):
        unlearn(trained(), split(), wrong)


def test_seeds_are_whole_numbers():
    with pytest.raises(GradPivotError, match="pass an integer"):
        unlearn(trained(), split(), CUP(epochs=1), seed=1.5)


def test_measuring_the_step_leaves_float64_weights_alone():
    """A float64 weight needs no conversion, so the difference must not be taken in its own memory."""
    split = ForgetSplit.by_class(TensorDataset(blobs().tensors[0].double(), blobs().tensors[1]), blobs(seed=1), 0)
    method = WS(lr=0.01, momentum=0.0, epochs=1, batch_size=40, max_norm=None)
    model = trained().double()
    outcome = Loop().run(method, model, Classification(), split)
    moved = sum(
        float((a - b).detach().square().sum())
        for a, b in zip(outcome.model.parameters(), model.parameters(), strict=True)
    )
    assert moved**0.5 == pytest.approx(0.01 * outcome.history["step_norm"][0], rel=1e-9)
