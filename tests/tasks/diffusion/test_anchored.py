from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, WS, ForgetSplit
from gradpivot.dial.ramp import target_degree
from gradpivot.errors import GradPivotError
from gradpivot.geometry.gradient import gradient_of
from gradpivot.loop import Loop, Outcome
from gradpivot.runtime.randomness import isolated
from gradpivot.tasks.diffusion.anchored import AnchoredDiffusion
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.objectives import Objective, objective

TASK = Diffusion(classes=3, timesteps=50)
OTHER = objective("other_class")


class Labelled(nn.Module):
    """ε_θ = w·x_t plus a value for each label; the last one means no class."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))
        self.class_embedding = nn.Embedding(4, 1)

    def forward(self, images: torch.Tensor, timesteps: torch.Tensor, class_labels: torch.Tensor) -> torch.Tensor:
        return self.slope * images + self.class_embedding(class_labels)[:, :, None, None]


def model(*values: float) -> Labelled:
    made = Labelled()
    with torch.no_grad():
        made.class_embedding.weight.copy_(torch.tensor(values or (0.0, 1.0, 3.0, 2.0))[:, None])
    return made


def data(count: int = 96) -> TensorDataset:
    images = torch.randint(0, 256, (count, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return TensorDataset(images, torch.arange(count) % 3)


def split(*classes: int) -> ForgetSplit:
    return ForgetSplit.by_class(data(), data(), classes or (1,))


def anchored(*classes: int) -> AnchoredDiffusion:
    return TASK.anchored(model(), split(*classes))


def of_class(label: int) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = data().tensors
    return images[labels == label], labels[labels == label]


@pytest.mark.parametrize(("name", "value"), [("other_class", 3.0), ("unlikelihood", 3.0), ("no_class", 2.0)])
def test_the_loss_is_zero_and_the_degree_one_where_the_prediction_is_the_anchors(name, value):
    task, there = anchored(), model(0.0, value, 3.0, 2.0)
    with isolated(1):
        found = task.forgetting(there, of_class(1), objective(name))
    assert found.loss.item() == 0
    assert found.degree.tolist() == [1.0] * 32


@pytest.mark.parametrize("way", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_the_degree_is_0_for_the_original_and_1_at_the_anchor(way):
    with isolated(1):
        found = anchored().forgetting(model(0.0, 1 + 2 * way, 3.0, 2.0), of_class(1), OTHER)
    # From 1 to 3: the squared distances are 4(1 − way)² and 4way².
    assert found.loss.item() == pytest.approx(4 * (1 - way) ** 2, abs=1e-6)
    left = (1 - way) ** 2 / ((1 - way) ** 2 + way**2)
    assert found.degree.tolist() == pytest.approx([1 - left**3] * 32, abs=1e-6)
    assert not found.degree.requires_grad


def test_a_prediction_as_far_from_both_labels_is_half_way():
    with isolated(1):
        degree = anchored().degree(model(0.0, 1e4, 3.0, 2.0), of_class(1), OTHER)
    assert degree.tolist() == pytest.approx([7 / 8] * 32, abs=1e-3)


def test_the_original_predicts_once_for_a_batch_and_its_checks():
    task, moved, passes = anchored(), model(0.0, 1.5, 3.0, 2.0), []
    moved.slope.data.add_(0.1)
    task.original.register_forward_hook(lambda *_: passes.append(1))
    seeds = (1, 2, 1, 2, 1)
    found = []
    for seed in seeds:
        with isolated(seed):
            degree = task.degree(moved, of_class(1), OTHER)[0].item()
            found.append((degree, task.retain_loss(moved, of_class(0)).item()))
    assert len(passes) == 4, "two batches, each with a forget and a retain loss"
    assert found[0] == found[2] == found[4] != found[1]
    for seed in range(3, 20):
        with isolated(seed):
            task.retain_loss(moved, of_class(0))
    assert len(task._known) == 8


@pytest.mark.parametrize("name", ["other_class", "no_class"])
def test_loss_and_degree_alone_are_the_same(name):
    task, moved = anchored(), model(0.0, 1.5, 3.0, 2.0)
    with isolated(2):
        found = task.forgetting(moved, of_class(1), objective(name))
    with isolated(2):
        torch.testing.assert_close(task.forget_loss(moved, of_class(1), objective(name)), found.loss)
    with isolated(2):
        torch.testing.assert_close(task.degree(moved, of_class(1), objective(name)), found.degree)


@pytest.mark.parametrize("training", [True, False])
def test_the_original_retains_everything_at_no_gradient(training):
    task, same = anchored(), model().train(training)
    with isolated(3):
        loss = task.retain_loss(same, of_class(0))
        gradient = gradient_of(loss, list(same.parameters()))
    assert loss.item() == 0
    assert all(float(part.abs().sum()) == 0 for part in gradient)


@pytest.mark.parametrize("training", [True, False])
def test_the_prediction_without_a_label_is_retained_too(training):
    task = replace(TASK, label_dropout=0.5).anchored(model(), split())
    with isolated(3):
        loss = task.retain_loss(model(0.0, 1.0, 3.0, 5.0).train(training), of_class(0))
    # 9 for each sample without its label.
    assert 0 < loss.item() < 9


def test_no_gradient_enters_the_original_and_the_model_may_move_on():
    start = model()
    task = TASK.anchored(start, split())
    with isolated(4):
        task.forget_loss(start, of_class(1), OTHER).backward()
    assert start.class_embedding.weight.grad is not None
    assert all(p.grad is None and not p.requires_grad for p in task.original.parameters())
    with torch.no_grad():
        start.slope.add_(1)
    assert task.original.slope.item() == 0.5


def test_the_anchor_is_the_next_class_that_is_not_forgotten():
    assert anchored(1).anchors(torch.arange(3), OTHER).tolist() == [2, 2, 0]
    assert anchored(1, 2).anchors(torch.tensor([1, 2]), OTHER).tolist() == [0, 0]
    assert anchored(0, 2).anchors(torch.tensor([2, 0]), OTHER).tolist() == [1, 1]
    assert anchored(1).anchors(torch.tensor([1]), objective("no_class")).tolist() == [3]


def test_objectives_without_an_anchor_are_refused():
    own = Objective("own", lambda predicted, noise: predicted.mean(), None, takes="noise")
    for wanting in (objective("noise_image"), objective("negative_mse"), own):
        with pytest.raises(GradPivotError, match="no degree of forgetting for diffusion; use dial='angle'"):
            anchored().degree(model(), of_class(1), wanting)
    alone = AnchoredDiffusion.of(Diffusion(classes=1), model(), ())
    with pytest.raises(GradPivotError, match="use no_class"):
        alone.anchors(torch.zeros(2, dtype=torch.long), OTHER)


@pytest.mark.numeric
@pytest.mark.parametrize("kind", [CUP, WS])
@pytest.mark.parametrize("gamma", [0.0, 0.4, 0.8])
def test_a_run_lands_on_the_share_of_the_way_that_gamma_asks_for(kind, gamma):
    task = replace(TASK, loss_unit=4.0, retain_budget=1.0)
    method = kind(gamma=gamma, lr=0.1, iterations=60, batch_size=32, augment="none")
    outcome = Loop(seed=0).run(method, model(), task, split())
    with isolated(5), torch.no_grad():
        degree = anchored().degree(outcome.model, of_class(1), OTHER).mean()
    assert float(degree) == pytest.approx(target_degree(gamma), abs=0.05)
    assert outcome.history["reached"][-1] == pytest.approx(outcome.history["asked"][-1], abs=0.05)
    assert min(outcome.history["intensity"]) >= 0, "climbing away from another class leads anywhere"


def test_a_run_leaves_the_task_and_the_model_alone():
    start = model()
    method = CUP(gamma=1.0, lr=0.1, iterations=5, batch_size=32, augment="none")
    one, two = (Loop(seed=0).run(method, start, TASK, split()).model for _ in range(2))
    assert torch.equal(one.class_embedding.weight, two.class_embedding.weight)
    assert start.class_embedding.weight[:, 0].tolist() == [0.0, 1.0, 3.0, 2.0]


def test_a_class_that_an_earlier_request_deleted_is_nobodys_anchor():
    """Label 0 was taught to draw class 1, which had been deleted."""
    train = data()
    gone = [index for index, label in enumerate(train.tensors[1].tolist()) if label == 1]
    second = ForgetSplit.by_class(train, data(), 0, already_forgotten=gone)
    labels = torch.tensor([0, 2])
    assert TASK.anchored(model(), second).anchors(labels, OTHER).tolist() == [2, 2]


class Keyword(nn.Module):
    """Calls its label differently."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, images: torch.Tensor, timesteps: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return self.inner(images, timesteps, class_labels=label)


class Adapted(Diffusion):
    def predicted(self, model, noisy, labels):
        return model(noisy.images, noisy.timesteps, label=labels)


def test_a_subclass_of_the_task_runs_its_own_way_under_the_dial():
    outcome = Loop().run(CUP(gamma=0.5, epochs=2), Keyword(), Adapted(classes=3, timesteps=50), split())
    assert outcome.diverged is None
    assert len(outcome.history["reached"]) > 0


def test_a_model_that_ignores_its_label_has_nothing_to_forget():
    same = model(1.0, 1.0, 1.0, 1.0)
    with pytest.raises(GradPivotError, match="predicts the same"):
        TASK.anchored(same, split()).degree(same, of_class(1), OTHER)


class Noisier(Labelled):
    """With dropout, as most diffusion models."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: torch.Tensor, timesteps: torch.Tensor, class_labels: torch.Tensor) -> torch.Tensor:
        return self.dropout(super().forward(images, timesteps, class_labels))


def forgotten(kind: type[Labelled] = Labelled, task: Diffusion = TASK, **settings: object) -> Outcome:
    made = kind()
    made.load_state_dict(model().state_dict())
    method = CUP(**{"gamma": 1.0, "lr": 0.1, "iterations": 20, "batch_size": 32, "augment": "none", **settings})
    return Loop(seed=0).run(method, made, task, split())


@pytest.mark.parametrize("kind", [Labelled, Noisier])
@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam", "weight_decay": 0.1}])
def test_a_run_leaves_other_labels_bit_identical(kind, settings):
    outcome = forgotten(kind, **settings)
    assert outcome.model.slope.item() == 0.5
    assert outcome.model.class_embedding.weight[[0, 2, 3], 0].tolist() == [0.0, 3.0, 2.0]
    assert outcome.model.class_embedding.weight[1].item() > 2
    assert outcome.note is None


def test_a_run_may_change_the_rows_of_the_forgotten_labels_only():
    told: list[str] = []
    slope, rows = TASK.anchored(model(), split(0, 1)).restriction(model(), told.append)
    assert not slope
    assert rows[:, 0].tolist() == [True, True, False, False]
    assert replace(TASK, forgets="model").anchored(model(), split()).restriction(model(), told.append) is None
    records = ForgetSplit.random(data(), data(), 0.5)
    assert TASK.anchored(model(), records).restriction(model(), told.append) is None
    assert not told


def test_a_model_without_a_trainable_embedding_forgets_with_all_weights_and_says_so():
    frozen = model()
    frozen.class_embedding.requires_grad_(False)
    outcome = Loop(seed=0).run(CUP(gamma=1.0, lr=0.1, iterations=5, batch_size=32), frozen, TASK, split())
    assert outcome.model.slope.item() != 0.5
    assert "no trainable nn.Embedding named class_embedding" in outcome.note


def test_dropout_is_no_distance_from_the_original():
    made = Noisier()
    made.load_state_dict(model().state_dict())
    task = TASK.anchored(made, split())
    with isolated(1):
        found = task.forgetting(made.train(), of_class(1), OTHER)
    assert found.degree.tolist() == [0.0] * 32


@pytest.mark.parametrize(
    "settings", [{"forgets": "row"}, {"loss_unit": 0}, {"loss_unit": -1.0}, {"retain_budget": float("nan")}]
)
def test_constants_that_make_no_sense_are_refused(settings):
    with pytest.raises(GradPivotError, match=next(iter(settings))):
        Diffusion(**settings)
