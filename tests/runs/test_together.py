"""Models trained together are those that are trained one by one, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot.data.split import ForgetSplit
from gradpivot.data.worlds import world_split
from gradpivot.experiments.problem import Problem
from gradpivot.loop.loop import Loop
from gradpivot.methods.retrain import Retrain
from gradpivot.models.cnn import SmallCNN
from gradpivot.models.mlp import MLP
from gradpivot.runs.original import train_original
from gradpivot.runs.together import Lesson, train_together, why_separately
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import TinyNet, blobs

TRAIN, TEST = blobs(20), blobs(20, seed=1)
BASE = ForgetSplit.by_class(TRAIN, TEST, [0])
# 40 retained samples and a random half of 20: last batches of other sizes, and of a batch of 6 also other counts.
WORLDS = [world_split(BASE, k)[0] for k in range(5)]
PROBLEM = Problem(
    name="tiny", load=lambda: (TRAIN, TEST), model=lambda: MLP((4, 16, 3)),
    training=Retrain(lr=0.05, epochs=4, batch_size=6),
)  # fmt: skip


def all_of(split: ForgetSplit) -> np.ndarray:
    return np.sort(np.concatenate([split.forget_indices, split.retain_indices]))


@pytest.mark.parametrize(
    "training",
    [
        PROBLEM.training,
        Retrain(lr=0.05, epochs=3, batch_size=20, nesterov=True, label_smoothing=0.1, schedule="one_cycle"),
        Retrain(lr=0.01, epochs=3, batch_size=20, optimizer="adam", ema=0.9, schedule="constant"),
        Retrain(lr=0.01, epochs=3, batch_size=64, optimizer="adamw"),
    ],
    ids=["sgd", "nesterov", "adam", "adamw"],
)
def test_originals_are_those_of_separate_trainings(training):
    problem = replace(PROBLEM, training=training)
    state = torch.random.get_rng_state()
    taught = train_together(problem, [Lesson(w.train, all_of(w), seed) for seed, w in enumerate(WORLDS)])
    assert torch.equal(state, torch.random.get_rng_state())
    for seed, (world, one) in enumerate(zip(WORLDS, taught, strict=True)):
        alone = train_original(problem, world, seed)
        assert one is not None
        assert not one.model.training
        for mine, theirs in zip(one.model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_references_come_with_the_history_of_separate_trainings():
    taught = train_together(PROBLEM, [Lesson(w.train, w.retain_indices, seed) for seed, w in enumerate(WORLDS)])
    for seed, (world, one) in enumerate(zip(WORLDS, taught, strict=True)):
        loop = Loop(seed=seed, factory=PROBLEM.model)
        alone = loop.run(PROBLEM.training, PROBLEM.model(), PROBLEM.task, world)
        assert one is not None
        rows = one.state["history"]
        assert one.state["step"] == len(rows) == len(alone.history["step"])
        assert rows[0].keys() == alone.history.keys()
        for column in ("retain_loss", "retain_norm", "step_norm"):
            assert [row[column] for row in rows] == pytest.approx(alone.history[column], rel=1e-2, abs=1e-3)


def test_a_diverged_training_is_left_to_the_loop_and_spoils_no_other():
    features, labels = blobs(20).tensors
    features[0] = torch.inf
    data = TensorDataset(features, labels)
    first, second = train_together(PROBLEM, [Lesson(data, np.arange(40), 0), Lesson(data, np.arange(1, 41), 1)])
    assert first is None
    assert second is not None
    assert all(bool(p.isfinite().all()) for p in second.model.parameters())


def test_data_that_are_no_tensors_are_left_to_the_loop():
    assert train_together(PROBLEM, [Lesson([TRAIN[0], TRAIN[1]], np.arange(2), 0)]) == [None]


class Own(Classification):
    """A task with a loss of its own."""


class Branching(nn.Module):
    """Looks at its data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.linear(features if features.sum() > 0 else -features)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": TinyNet}, "buffers"),
        ({"model": lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1))}, "dropout"),
        ({"model": SmallCNN}, "convolutions"),
        ({"model": lambda: MLP((4, 10_000, 3))}, "80,003 weights"),
        ({"model": lambda: MLP((4, 16, 3)).requires_grad_(False)}, "frozen"),
        ({"task": Own()}, "classification"),
        ({"training": Retrain(augment="crop_flip")}, "augmented"),
        ({"training": Retrain(max_norm=1.0)}, "clips"),
    ],
)
def test_what_is_trained_one_by_one_and_why(change, why):
    assert why_separately(PROBLEM, TRAIN) is None
    assert why in why_separately(replace(PROBLEM, **change), TRAIN)


def test_a_model_that_branches_on_its_data_cannot_be_stacked():
    assert "data-dependent" in why_separately(replace(PROBLEM, model=Branching), TRAIN)


class Wrapped(MLP):
    """Returns its logits in a dictionary, as the models of other libraries do."""

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": super().forward(features)}


def test_logits_are_read_as_the_task_reads_them():
    problem = replace(PROBLEM, model=lambda: Wrapped((4, 16, 3)))
    assert why_separately(problem, TRAIN) is None
    lessons = [Lesson(TRAIN, np.arange(20), seed) for seed in range(2)]
    for one, plain in zip(train_together(problem, lessons), train_together(PROBLEM, lessons), strict=True):
        assert one is not None
        assert plain is not None
        for mine, theirs in zip(one.model.parameters(), plain.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
