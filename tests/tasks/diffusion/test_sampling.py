from __future__ import annotations

import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.models.ddpm import small_unet
from gradpivot.runtime.randomness import isolated
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.diffusion.sampling import Sampler, guided_noise

TASK = Diffusion(classes=3, timesteps=40)
SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    with isolated(0):
        return small_unet(size=8, classes=3)


class Knows(nn.Module):
    """The exact ε for data that are one known picture per class, and their mean without a class."""

    def __init__(self, pictures: torch.Tensor, task: Diffusion) -> None:
        super().__init__()
        self.register_buffer("pictures", torch.cat([pictures, pictures.mean(0, keepdim=True)]))
        self.weight = nn.Parameter(torch.zeros(()))
        self.alphas = task.schedule().alphas_cumprod

    def forward(self, images, timesteps, class_labels):
        at = self.alphas[torch.as_tensor(timesteps)].reshape(-1, 1, 1, 1)
        return (images - at.sqrt() * self.pictures[class_labels]) / (1 - at).sqrt()


@pytest.mark.slow
def test_guidance_is_its_formula_in_one_forward_pass(model):
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    images, labels, at = torch.randn(4, *SHAPE), torch.tensor([0, 1, 2, 1]), torch.tensor(17)
    with torch.no_grad():
        found = guided_noise(model, images, at, labels, 3, 2.0)
        assert len(calls) == 1
        conditional = model(images, at, class_labels=labels).sample
        free = model(images, at, class_labels=torch.full((4,), 3)).sample
    handle.remove()
    torch.testing.assert_close(found, 3 * conditional - 2 * free, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("guidance", [0.0, 2.0])
def test_guidance_changes_nothing_where_the_label_does_not_matter(model, guidance):
    images, at = torch.randn(2, *SHAPE), torch.tensor(5)
    none = torch.full((2,), 3)
    with torch.no_grad():
        found = guided_noise(model, images, at, none, 3, guidance)
        torch.testing.assert_close(found, model(images, at, class_labels=none).sample, rtol=1e-4, atol=1e-4)


def test_without_guidance_it_is_the_conditional_model(model):
    images, labels, at = torch.randn(2, *SHAPE), torch.tensor([0, 2]), torch.tensor(5)
    with torch.no_grad():
        assert torch.equal(guided_noise(model, images, at, labels, 3, 0), model(images, at, class_labels=labels).sample)


@pytest.mark.parametrize("kind", ["ddim", "ancestral"])
@pytest.mark.parametrize("steps", [8, 40])
def test_an_exact_model_gives_its_pictures(kind, steps):
    """The reverse process ends at x_0 wherever it began, if ε_θ knows x_0."""
    pictures = torch.linspace(-0.9, 0.9, 3 * 64).reshape(3, *SHAPE)
    exact = Knows(pictures, TASK)
    sampler = Sampler(kind=kind, steps=steps, guidance=0)
    found = sampler.draw(exact, TASK, [0, 1, 2], [5, 6, 7], shape=SHAPE)
    torch.testing.assert_close(found, pictures / 2 + 0.5, atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["ddim", "ancestral"])
def test_a_seed_is_a_picture_whatever_the_batch(model, kind):
    labels, seeds = [0, 1, 2, 0, 1], [3, 1, 4, 15, 9]
    all_at_once = Sampler(kind=kind, steps=4).draw(model, TASK, labels, seeds)
    in_twos = Sampler(kind=kind, steps=4, batch_size=2).draw(model, TASK, labels, seeds)
    alone = Sampler(kind=kind, steps=4).draw(model, TASK, labels[2:3], seeds[2:3])
    torch.testing.assert_close(in_twos, all_at_once, atol=1e-4, rtol=0)
    torch.testing.assert_close(alone[0], all_at_once[2], atol=1e-4, rtol=0)
    assert torch.equal(Sampler(kind=kind, steps=4).draw(model, TASK, labels, seeds), all_at_once)
    other = Sampler(kind=kind, steps=4).draw(model, TASK, labels, [s + 1 for s in seeds])
    assert not torch.allclose(other, all_at_once, atol=1e-2)


def test_ancestral_sampling_draws_in_every_step_and_ddim_does_not(model):
    """The first noise is the same; what follows is not."""
    first = Sampler(kind="ddim", steps=4).draw(model, TASK, [0], [0])
    second = Sampler(kind="ancestral", steps=4).draw(model, TASK, [0], [0])
    assert not torch.allclose(first, second, atol=1e-2)


def test_the_caller_is_left_alone(model):
    model.train()
    state = torch.get_rng_state()
    told = []
    images = Sampler(steps=3, batch_size=2).draw(
        model, TASK, [0, 1, 3], [0, 1, 2], progress=lambda done, total: told.append((done, total))
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert images.shape == (3, *SHAPE)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert told == [(n, 6) for n in range(1, 7)]
    assert Sampler().draw(model, TASK, [], []).shape == (0, *SHAPE)


def test_wrong_settings_raise(model):
    for settings, message in [
        ({"kind": "euler"}, "choose ddim or ancestral"), ({"steps": 0}, "both must be ≥ 1"),
        ({"guidance": -1}, "≥ 0"), ({"guidance": float("nan")}, "≥ 0"),
    ]:  # fmt: skip
        with pytest.raises(GradPivotError, match=message):
            Sampler(**settings)
    with pytest.raises(GradPivotError, match="2 labels and 1 seeds"):
        Sampler().draw(model, TASK, [0, 1], [0])
    with pytest.raises(GradPivotError, match="outside 0 … 2"):
        Sampler().draw(model, TASK, [4], [0])
    with pytest.raises(GradPivotError, match="at most 40"):
        Sampler(steps=41).draw(model, TASK, [0], [0])
    with pytest.raises(GradPivotError, match="pass shape"):
        Sampler().draw(nn.Linear(1, 1), TASK, [0], [0])
