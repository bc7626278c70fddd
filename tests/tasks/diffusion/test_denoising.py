from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, RL, WS, ForgetSplit, SalUn
from gradpivot.errors import GradPivotError
from gradpivot.loop.gradients import StepLosses
from gradpivot.loop.loop import Loop
from gradpivot.runtime.randomness import derive, drawing_for, isolated
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.objectives import Objective, objective
from gradpivot.testing.problems import blobs, trained

TASK = Diffusion(classes=3, timesteps=50)


class TinyNoise(nn.Module):
    """ε_θ(x_t, t, c) in a few weights, called as a UNet2DModel is."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.class_embedding = nn.Embedding(classes + 1, 4)
        self.time = nn.Linear(1, 4)
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, images: torch.Tensor, timesteps: torch.Tensor, class_labels: torch.Tensor) -> torch.Tensor:
        timesteps = torch.as_tensor(timesteps).expand(len(images))
        known = self.class_embedding(class_labels) + self.time(timesteps[:, None].to(images.dtype) / 50)
        return self.last(torch.tanh(self.first(images) + known[:, :, None, None]))


def tiny() -> TinyNoise:
    with isolated(0):
        return TinyNoise()


def patches(count: int = 60, seed: int = 0) -> TensorDataset:
    """8×8 images of bytes with a bright row, column or corner by class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.randint(0, 60, (count, 1, 8, 8), generator=generator)
    for image, label in zip(images, labels, strict=True):
        where = [(0, 3), (0, slice(None), 3), (0, slice(0, 4), slice(0, 4))][label]
        image[where] += 180
    return TensorDataset(images.to(torch.uint8), labels)


def forgotten() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of the class that is forgotten."""
    images, labels = patches().tensors
    mine = labels == 1
    return images[mine], labels[mine]


def split() -> ForgetSplit:
    return ForgetSplit.by_class(patches(), patches(seed=1), 1)


BATCH = (patches().tensors[0][:9], patches().tensors[1][:9])


def by_hand(
    labels: torch.Tensor, images: torch.Tensor | None = None
) -> tuple[TinyNoise, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The forward process written out, under the seed 7: x_t, t and ε."""
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
    order = torch.randperm(len(labels))
    timesteps = ((order + torch.rand(len(labels), dtype=torch.float64)) * 50 / len(labels)).long()
    noise = torch.randn(len(labels), 1, 8, 8)
    clean = BATCH[0].float() / 255 * 2 - 1 if images is None else images
    at = alphas[timesteps][:, None, None, None]
    return tiny(), at.sqrt() * clean + (1 - at).sqrt() * noise, timesteps, noise


def test_retain_loss_is_the_mean_squared_error_of_the_noise():
    with isolated(7):
        model, noisy, timesteps, noise = by_hand(BATCH[1])
        expected = ((model(noisy, timesteps, BATCH[1]) - noise) ** 2).mean()
    with isolated(7):
        found = TASK.retain_loss(tiny().eval(), BATCH)
    torch.testing.assert_close(found, expected)


def test_labels_are_dropped_in_train_mode_and_at_the_asked_for_rate():
    seen: list[torch.Tensor] = []

    class Spy(TinyNoise):
        def forward(self, images, timesteps, class_labels):
            seen.append(class_labels)
            return super().forward(images, timesteps, class_labels)

    many = (BATCH[0][:1].expand(4000, 1, 8, 8), torch.ones(4000, dtype=torch.long))
    with isolated(0), torch.no_grad():
        Diffusion(classes=3, label_dropout=0.3).retain_loss(Spy().train(), many)
        Diffusion(classes=3, label_dropout=0.3).retain_loss(Spy().eval(), many)
        Diffusion(classes=3, label_dropout=0.0).retain_loss(Spy().train(), many)
    assert set(seen[0].tolist()) == {1, 3}
    assert float((seen[0] == 3).float().mean()) == pytest.approx(0.3, abs=0.03)
    assert set(seen[1].tolist()) == set(seen[2].tolist()) == {1}


@pytest.mark.parametrize("name", ["negative_mse", "negative_ce"])
def test_the_papers_objective_is_minus_mse_under_the_label(name):
    with isolated(7):
        model, noisy, timesteps, noise = by_hand(BATCH[1])
        expected = -mse_loss(model(noisy, timesteps, BATCH[1]), noise)
    with isolated(7):
        # Train mode: labels are not dropped here.
        found = TASK.forget_loss(tiny().train(), BATCH, objective(name))
    torch.testing.assert_close(found, expected)
    assert objective("negative_mse").lower_bound is None


@pytest.mark.parametrize("name", ["other_class", "unlikelihood", "random_label"])
def test_other_class_aims_at_another_classes_prediction_and_lets_no_gradient_through_it(name):
    with isolated(7):
        model, noisy, timesteps, _ = by_hand(BATCH[1])
        others = (BATCH[1] + 1 + torch.randint(2, (9,))) % 3
        assert not (others == BATCH[1]).any()
        target = model(noisy, timesteps, others).detach()
        expected = mse_loss(model(noisy, timesteps, BATCH[1]), target)
        expected.backward()
    with isolated(7):
        own = tiny()
        found = TASK.forget_loss(own, BATCH, objective(name))
        found.backward()
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(own.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_other_classes_are_drawn_uniformly_from_the_others():
    labels = torch.ones(6000, dtype=torch.long)
    with isolated(0):
        drawn = Diffusion(classes=4)._teacher_labels("other_class", labels)
    shares = torch.bincount(drawn, minlength=4) / 6000
    assert shares[1] == 0
    torch.testing.assert_close(shares[[0, 2, 3]], torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_no_class_aims_at_what_is_predicted_without_a_class():
    with isolated(7):
        model, noisy, timesteps, _ = by_hand(BATCH[1])
        free = model(noisy, timesteps, torch.full((9,), 3)).detach()
        expected = mse_loss(model(noisy, timesteps, BATCH[1]), free)
    with isolated(7):
        found = TASK.forget_loss(tiny(), BATCH, objective("no_class"))
    torch.testing.assert_close(found, expected)


def test_noise_image_trains_the_label_on_uniform_noise():
    with isolated(7):
        images = 2 * torch.rand(9, 1, 8, 8) - 1
        model, noisy, timesteps, noise = by_hand(BATCH[1], images)
        expected = mse_loss(model(noisy, timesteps, BATCH[1]), noise)
    with isolated(7):
        found = TASK.forget_loss(tiny(), BATCH, objective("noise_image"))
    torch.testing.assert_close(found, expected)


def test_an_objective_of_ones_own_gets_prediction_and_noise():
    with isolated(7):
        model, noisy, timesteps, noise = by_hand(BATCH[1])
        expected = (model(noisy, timesteps, BATCH[1]) - noise).abs().mean()
    mine = Objective("absolute", lambda predicted, target: (predicted - target).abs().mean(), 0.0, takes="noise")
    with isolated(7):
        torch.testing.assert_close(TASK.forget_loss(tiny(), BATCH, mine), expected)


def test_floating_point_images_are_taken_to_be_in_0_to_1():
    floats = (BATCH[0].float() / 255, BATCH[1])
    with isolated(7):
        first = TASK.retain_loss(tiny(), BATCH)
    with isolated(7):
        torch.testing.assert_close(TASK.retain_loss(tiny(), floats), first)


@pytest.mark.parametrize("name", ["other_class", "noise_image", "negative_mse"])
def test_two_processes_draw_what_one_does(name):
    model = tiny()
    images, labels = BATCH

    def parts(loss):
        for start, stop in ((0, 4), (4, 9)):
            with isolated(99 + start), drawing_for(start, stop, 9, 7), torch.no_grad():
                yield float(loss((images[start:stop], labels[start:stop]))) * (stop - start) / 9

    for loss in (
        lambda batch: TASK.retain_loss(model, batch),
        lambda batch: TASK.forget_loss(model, batch, objective(name)),
    ):
        with isolated(), drawing_for(0, 9, 9, 7), torch.no_grad():
            whole = float(loss(BATCH))
        assert sum(parts(loss)) == pytest.approx(whole, rel=1e-5)


def test_the_loop_seeds_the_retain_side_apart_from_the_forget_side():
    """Else the retain draws of one process, which come after the forget draws, would be those of no other."""
    losses: dict[str, list[float]] = {}
    shared = {"iterations": 1, "batch_size": 8}
    for name, method in {"cup": CUP(dial="angle", **shared), "ws": WS(objective="negative_ce", **shared)}.items():
        losses[name] = Loop(seed=3).run(method, tiny(), TASK, split()).history["retain_loss"]
    assert losses["cup"] == losses["ws"]


METHODS = [
    CUP(gamma=0.6, dial="angle", lr=0.01, epochs=2, batch_size=8),
    CUP.protocol("paper", gamma=0.3, lr=1e-3, iterations=5, batch_size=8),
    WS(lr=0.01, epochs=1, batch_size=8),
    GA(lr=0.01, epochs=1, batch_size=8, objective="no_class"),
    RL(lr=0.01, epochs=1, batch_size=8),
    SalUn(lr=0.01, epochs=1, batch_size=8, saliency=0.3),
    CUP(gamma=0.6, dial="angle", lr=0.01, epochs=1, batch_size=8, objective="noise_image"),
    CUP(gamma=1.0, lr=0.01, epochs=2, batch_size=8, optimizer="adam"),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.label)
def test_methods_run_and_resume_bit_for_bit(method, tmp_path: Path):
    whole = Loop(seed=1).run(method, tiny(), TASK, split())
    assert whole.diverged is None
    assert not _equal(whole.model, tiny())

    class KilledError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KilledError

    path = tmp_path / "checkpoint.pt"
    with pytest.raises(KilledError):
        Loop(seed=1, checkpoint=path, checkpoint_seconds=0, progress=stop).run(method, tiny(), TASK, split(), key="a")
    resumed = Loop(seed=1, checkpoint=path, checkpoint_seconds=0).run(method, tiny(), TASK, split(), key="a")
    assert _equal(whole.model, resumed.model)
    assert whole.history == resumed.history


def test_salun_changes_salient_weights_only():
    method = SalUn(lr=0.01, epochs=1, batch_size=8, saliency=0.3)
    before, after = tiny(), Loop().run(method, tiny(), TASK, split()).model
    same = torch.cat([(a == b).flatten() for a, b in zip(before.parameters(), after.parameters(), strict=True)])
    total = len(same)
    assert int((~same).sum()) <= round(0.3 * total)
    assert (~same).any()


@pytest.mark.numeric
def test_the_other_class_objective_falls_and_the_rest_is_held():
    """On a model that knows its classes the label's meaning moves; without retain data this test would fail."""
    model = tiny()
    from gradpivot.methods.retrain import Retrain
    from gradpivot.runs.training import FitToAll

    fit = FitToAll(Retrain(optimizer="adam", lr=0.02, epochs=30, batch_size=20, weight_decay=0, schedule="constant"))
    model = Loop(factory=tiny).run(fit, model, TASK, split()).model
    outcome = Loop().run(
        CUP(gamma=0.5, dial="angle", max_norm=1.0, optimizer="adam", lr=0.01, epochs=15, batch_size=20),
        model,
        TASK,
        split(),
    )

    def losses(of: nn.Module) -> tuple[float, float]:
        images, labels = (tensor.repeat_interleave(20, 0) for tensor in patches().tensors)
        forget, retain = ((images[part], labels[part]) for part in (labels == 1, labels != 1))
        with isolated(5), torch.no_grad():
            return (
                float(TASK.forget_loss(of.eval(), forget, objective("other_class"))),
                float(TASK.retain_loss(of.eval(), retain)),
            )

    (forget_before, retain_before), (forget_after, retain_after) = losses(model), losses(outcome.model)
    assert forget_after < 0.95 * forget_before
    assert retain_after < 1.1 * retain_before


def test_wrong_settings_raise():
    with pytest.raises(GradPivotError, match="num_class_embeds=4"):
        TASK.retain_loss(TinyNoise(classes=2), BATCH)
    with pytest.raises(GradPivotError, match="outside 0 … 2"):
        TASK.retain_loss(tiny(), (BATCH[0], BATCH[1] + 1))
    with pytest.raises(GradPivotError, match="n×c×h×w"):
        TASK.retain_loss(tiny(), (BATCH[0].flatten(1), BATCH[1]))
    with pytest.raises(GradPivotError, match="do not predict labels"):
        TASK.predict(tiny(), BATCH)
    with pytest.raises(GradPivotError, match="use no_class"):
        Diffusion(classes=1).forget_loss(TinyNoise(1), (BATCH[0], BATCH[1] * 0), objective("other_class"))
    with pytest.raises(GradPivotError, match="label_dropout is 1"):
        Diffusion(label_dropout=1)
    with pytest.raises(GradPivotError, match="retain_budget is -1"):
        Diffusion(retain_budget=-1)
    with pytest.raises(GradPivotError, match="beta_start"):
        Diffusion(beta_start=0.5, beta_end=0.1)
    with pytest.raises(GradPivotError, match="not classification"):
        Classification().forget_loss(trained(), blobs().tensors, objective("negative_mse"))


def test_iterations_end_a_pass_early():
    assert len(Loop().run(CUP(iterations=7, dial="angle", batch_size=8), tiny(), TASK, split()).history["step"]) == 7
    # 20 samples to forget in batches of 8 are 3 steps a pass; the first passes are those of whole ones.
    whole = Loop().run(CUP(epochs=3, dial="angle", batch_size=8), tiny(), TASK, split()).history["retain_loss"]
    assert (
        Loop().run(CUP(iterations=7, dial="angle", batch_size=8), tiny(), TASK, split()).history["retain_loss"]
        == whole[:7]
    )


def _equal(one: nn.Module, other: nn.Module) -> bool:
    theirs = copy.copy(other.state_dict())
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.state_dict().items())


def test_seeds_of_steps_are_those_of_several_processes():
    """What one process draws with on the retain side is the seed that each of several draws with."""
    losses = StepLosses(seed=4, step=0, parts=(None, None), replicas=None, passes=None)
    assert losses._draws_seed("retain") == derive(4, "step", 0, "retain")
    assert losses._draws_seed("forget") == derive(4, "step", 0)
