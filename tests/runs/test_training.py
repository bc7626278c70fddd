from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit, Retrain, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problem import Problem
from gradpivot.experiments.problems.digits import digits
from gradpivot.loop.loop import Loop
from gradpivot.models.pixels import Pixels
from gradpivot.runs.original import original_model, train_original
from gradpivot.runs.training import Epoch, FitToAll, Trained, everything, train_model
from gradpivot.runtime.randomness import isolated
from gradpivot.testing.problems import TinyNet, blobs

SHORT = Retrain.from_dict({**Retrain.short, "epochs": 3, "batch_size": 16, "augment": "crop_flip"})


class ConvNet(nn.Module):
    """What training code goes wrong on: BatchNorm, dropout, bytes for images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Pixels(), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 3),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def stripes(count: int, seed: int = 0) -> TensorDataset:
    """8×8 images of bytes: rows, columns or a chessboard, under noise. Shifts and mirrors leave the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    row, column = torch.arange(8)[:, None] % 2, torch.arange(8)[None, :] % 2
    patterns = torch.stack([row.expand(8, 8), column.expand(8, 8), (row + column) % 2])
    images = 160 * patterns[labels] + torch.randint(0, 96, (count, 8, 8), generator=generator)
    return TensorDataset(images[:, None].to(torch.uint8), labels)


def problem(**changes: Any) -> Problem:
    made = Problem(name="stripes", load=lambda: (stripes(100), stripes(60, seed=1)), model=ConvNet, training=SHORT)
    return replace(made, **changes)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


class KilledError(Exception):
    pass


def killed_after(steps: int, checkpoint: Path, **options: Any) -> None:
    def stop(done: int, total: int) -> None:
        if done == steps:
            raise KilledError

    with pytest.raises(KilledError):
        train_model(problem(), checkpoint=checkpoint, checkpoint_seconds=0, progress=stop, **options)


@pytest.mark.numeric
def test_learns():
    trained = train_model(problem(training=replace(SHORT, epochs=15, lr=0.1)))
    assert trained.test_accuracy == 1.0
    assert [epoch.number for epoch in trained.epochs] == list(range(1, 16))
    assert trained.epochs[-1].train_loss < trained.epochs[0].train_loss / 2
    assert trained.epochs[-1].test_accuracy == trained.test_accuracy
    assert trained.diverged is None
    assert not trained.model.training
    assert trained.images_per_second == pytest.approx(15 * 100 / trained.seconds)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_killed_and_continued_is_uninterrupted_bit_for_bit(tmp_path, precision):
    """BatchNorm, dropout, augmentation, Nesterov, one cycle, label smoothing; killed twice, once at an epoch's end."""
    whole = train_model(problem(), precision=precision)
    path = tmp_path / "checkpoint.pt"
    for steps in (4, 14):
        killed_after(steps, path, precision=precision)
    resumed = train_model(problem(), precision=precision, checkpoint=path)
    assert_same(whole.model, resumed.model)
    assert whole.epochs == resumed.epochs
    assert whole.provenance == resumed.provenance


def test_continuing_does_not_begin_again(tmp_path):
    path = tmp_path / "checkpoint.pt"
    killed_after(15, path)
    seen: list[int] = []
    told: list[Epoch] = []
    done = train_model(problem(), checkpoint=path, progress=lambda done, total: seen.append(done), tell=told.append)
    assert seen == [14, *range(15, 22)]
    assert [epoch.number for epoch in told] == [3]
    assert told[0] == done.epochs[-1]


@pytest.mark.parametrize("every", [0, 2])
def test_evaluation_changes_no_number(every):
    watched, other = train_model(problem()), train_model(problem(), evaluate_every=every)
    assert_same(watched.model, other.model)
    assert [e.train_loss for e in watched.epochs] == [e.train_loss for e in other.epochs]
    scored = [epoch.test_accuracy is not None for epoch in other.epochs]
    assert scored == [False, every == 2, True]


def test_epochs_are_told_as_they_end():
    told: list[Epoch] = []
    trained = train_model(problem(), tell=told.append)
    assert tuple(told) == trained.epochs


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches():
    """Against a plain loop over what the Loop recorded: 100 samples in batches of 16 are 7 steps."""
    recipe = replace(SHORT, epochs=2)
    seen: list[float] = []

    class Watched(Classification):
        def logits(self, model, batch):
            logits, targets = super().logits(model, batch)
            if torch.is_grad_enabled():
                smoothed = nn.functional.cross_entropy(logits.detach(), targets, label_smoothing=0.1)
                seen.append(float(smoothed))
            return logits, targets

    trained = train_model(problem(task=Watched()), recipe)
    assert len(seen) == 14
    assert trained.epochs[0].train_loss == pytest.approx(sum(seen[:7]) / 7, rel=1e-6)
    assert trained.epochs[1].train_loss == pytest.approx(sum(seen[7:]) / 7, rel=1e-6)


def test_is_the_model_that_unlearning_would_train_by_itself():
    made = digits()
    made = replace(made, training=replace(made.training, epochs=1))
    split = ForgetSplit.by_class(*made.load(), 3)
    assert_same(train_model(made, seed=4).model, train_original(made, split, 4))


def test_the_retrained_reference_is_training_without_the_forgotten_data():
    """Bit for bit: forgetting the last sample, and never having had it."""
    recipe = replace(SHORT, augment="none")
    train, test = problem().load()
    split = ForgetSplit.by_index(train, test, [len(train) - 1])
    reference = unlearn(ConvNet(), split, recipe, seed=1, factory=ConvNet)
    without = TensorDataset(*(tensor[:-1] for tensor in train.tensors))
    trained = train_model(problem(load=lambda: (without, test)), recipe, seed=1)
    assert_same(trained.model, reference.model)


@pytest.mark.parametrize("change", [{"seed": 1}, {"precision": "bfloat16"}, {"recipe": replace(SHORT, lr=0.1)}])
def test_a_checkpoint_of_another_training_is_refused(tmp_path, change):
    path = tmp_path / "checkpoint.pt"
    killed_after(3, path)
    with pytest.raises(GradPivotError, match="belongs to another run"):
        train_model(problem(), checkpoint=path, **change)


def test_a_checkpoint_of_other_data_or_another_model_is_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    killed_after(3, path)
    other_data = problem(load=lambda: (stripes(100, seed=5), stripes(60, seed=1)))
    wider = problem(model=partial(Wider, 1))
    bent = problem(model=Bent)
    for other in (other_data, wider, bent):
        with pytest.raises(GradPivotError, match="belongs to another run"):
            train_model(other, checkpoint=path)


class Bent(ConvNet):
    """The same weights as its parent."""


class Wider(ConvNet):
    def __init__(self, more: int) -> None:
        super().__init__()
        self.layers[-1] = nn.Linear(32, 3 + more)


def test_divergence_keeps_the_last_finite_weights():
    trained = train_model(problem(), replace(SHORT, lr=1e30))
    assert trained.diverged is not None
    assert trained.test_accuracy is None
    assert all(bool(p.isfinite().all()) for p in trained.model.parameters())


def test_a_last_step_that_goes_too_far_is_divergence():
    """Its loss was finite; the score is the first to see."""
    recipe = Retrain(epochs=1, batch_size=100, lr=1e38, schedule="constant", weight_decay=0, momentum=0)
    trained = train_model(problem(), recipe)
    assert trained.diverged is not None
    assert all(bool(p.isfinite().all()) for p in trained.model.parameters())


def test_recalibrated_statistics_are_in_the_final_accuracy():
    made = problem(training=replace(SHORT, batchnorm="recalibrate"))
    trained: Trained = train_model(made)
    features, labels = made.load()[1].tensors
    with torch.no_grad():
        right = (trained.model(features).argmax(1) == labels).double().mean()
    assert trained.test_accuracy == float(right)


def test_evaluate_every_is_checked():
    with pytest.raises(GradPivotError, match="evaluate_every is -1"):
        train_model(problem(), evaluate_every=-1)


def test_provenance_says_what_decides_a_number():
    facts = train_model(problem(), evaluate_every=0).provenance
    assert facts["data"] == everything(problem()).data_digest
    assert facts["recipe"] == SHORT.to_dict()
    assert (facts["seed"], facts["model"], facts["precision"], facts["compile"]) == (0, "ConvNet", "float32", False)
    assert math.isfinite(facts["environment"]["threads"])


def averaged_by_hand(decay: float) -> tuple[list[torch.Tensor], nn.Module]:
    """Every step's weights as a run without an average has them, and their average."""
    seen: list[list[torch.Tensor]] = []

    def look(model: nn.Module, loop: Any, ends: bool) -> dict[str, float | None]:
        seen.append([p.detach().clone() for p in model.parameters()])
        return {}

    fit = FitToAll(replace(SHORT, epochs=1), look)
    outcome = Loop(seed=0, factory=ConvNet).run(fit, ConvNet(), Classification(), everything(problem()))
    fresh = Loop(seed=0, factory=ConvNet)
    start = ConvNet()
    with isolated(0):
        fresh.initialise(start)
    average = [p.detach().clone() for p in start.parameters()]
    for number, weights in enumerate(seen):
        d = min(decay, (1 + number) / (10 + number))
        average = [d * a + (1 - d) * w for a, w in zip(average, weights, strict=True)]
    return average, outcome.model


def test_the_average_of_the_weights_is_its_formula():
    average, last = averaged_by_hand(0.6)
    trained = train_model(problem(training=replace(SHORT, epochs=1, ema=0.6)))
    torch.testing.assert_close([*trained.model.parameters()], average, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(trained.model.layers[-1].weight, last.layers[-1].weight, rtol=1e-2)


@pytest.mark.parametrize("after", [3, 20])
def test_the_average_is_part_of_the_checkpoint(tmp_path, after):
    recipe = replace(SHORT, ema=0.9)
    whole = train_model(problem(), recipe)
    killed_after(after, tmp_path / "c.pt", recipe=recipe)
    assert_same(train_model(problem(), recipe, checkpoint=tmp_path / "c.pt").model, whole.model)


def test_average_and_iterations_are_checked():
    with pytest.raises(GradPivotError, match="ema is 1"):
        Retrain(ema=1)
    with pytest.raises(GradPivotError, match="training is measured in epochs"):
        Retrain(iterations=5)


def test_an_original_is_not_trained_on_what_is_already_forgotten(tmp_path):
    recipe = Retrain(epochs=1, batch_size=20)
    problem = Problem(name="tiny", load=lambda: (blobs(), blobs(seed=1)), model=TinyNet, training=recipe)
    inputs, labels = blobs().tensors
    found = []
    for shift in (0, 1):
        train = TensorDataset(inputs, torch.cat([(labels[:9] + shift) % 3, labels[9:]]))
        split = ForgetSplit.by_index(train, blobs(seed=1), [20], data_id="same", already_forgotten=range(9))
        found.append(train_original(problem, split, 0).state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    everyone = ForgetSplit.by_index(train, blobs(seed=1), [20], data_id="same")
    original_model(problem, everyone, 0, tmp_path / "original.safetensors")
    with pytest.raises(GradPivotError, match="trained_without"):
        original_model(problem, split, 0, tmp_path / "original.safetensors")
