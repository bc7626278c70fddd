from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit
from gradpivot.cli.parser import parse
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.parts.fisher import diagonal_fisher
from gradpivot.methods.registry import make_method, method_class
from gradpivot.methods.sa import SA
from gradpivot.runtime.randomness import isolated
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.objectives import objective
from gradpivot.testing.problems import blobs, trained

TASK = Diffusion(classes=3, timesteps=30)
METHOD = SA(samples=4, sampler_steps=3, batch_size=2, epochs=3, lr=1e-2)


class TinyNoise(nn.Module):
    """ε_θ(x_t, t, c) in a few weights."""

    def __init__(self) -> None:
        super().__init__()
        self.class_embedding = nn.Embedding(4, 4)
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, images, timesteps, class_labels):
        known = self.class_embedding(class_labels)[:, :, None, None]
        return self.last(torch.tanh(self.first(images) + known))


def tiny() -> TinyNoise:
    with isolated(0):
        return TinyNoise()


def data(seed: int = 0) -> TensorDataset:
    images = torch.randint(0, 256, (30, 1, 8, 8), generator=torch.Generator().manual_seed(seed))
    return TensorDataset(images.to(torch.uint8), torch.arange(30) % 3)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(data(), data(1), 1)


@torch.no_grad()
def moved(model: nn.Module) -> float:
    pairs = zip(model.parameters(), tiny().parameters(), strict=True)
    return float(sum((a - b).square().sum() for a, b in pairs))


def run(method: SA = METHOD, **options) -> nn.Module:
    return Loop(seed=1, **options).run(method, tiny(), TASK, split(), key="sa")


def test_the_diagonal_is_the_mean_of_squared_single_gradients():
    model = nn.Linear(3, 1)
    inputs = torch.randn(5, 3)
    found = diagonal_fisher(model, lambda m, x: m(x).square().mean(), [one[None] for one in inputs])
    gradients = [2 * model(x).detach() * x for x in inputs]
    torch.testing.assert_close(found[0][0], torch.stack(gradients).square().mean(0))
    with pytest.raises(GradPivotError, match="at least one sample"):
        diagonal_fisher(model, lambda m, x: m(x).mean(), [])


def test_killed_and_resumed_is_uninterrupted(tmp_path: Path):
    whole = run()
    assert whole.diverged is None

    class KilledError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KilledError

    options = {"checkpoint": tmp_path / "c.pt", "checkpoint_seconds": 0}
    with pytest.raises(KilledError):
        run(progress=stop, **options)
    resumed = run(**options)
    assert resumed.history == whole.history
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


@pytest.mark.numeric
def test_the_penalty_holds_the_weights():
    free, held = (
        moved(run(SA(samples=4, sampler_steps=3, batch_size=2, epochs=6, lr=1e-2, penalty=w)).model) for w in (0, 100)
    )
    assert held < 0.5 * free


def test_no_training_image_decides_anything():
    """Other images of the same shape and labels: the same run."""
    other = ForgetSplit.by_class(data(seed=5), data(1), 1)
    mine, theirs = run().model, Loop(seed=1).run(METHOD, tiny(), TASK, other).model
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))


@pytest.mark.numeric
def test_the_label_learns_noise():
    """The loss of noise images under the forgotten label falls, over the same random numbers."""
    task = Diffusion(classes=3, timesteps=400)
    method = SA(samples=8, sampler_steps=3, batch_size=8, epochs=60, lr=2e-2, penalty=0)
    after = Loop(seed=1).run(method, tiny(), task, split()).model
    asked = data().tensors[0].repeat(10, 1, 1, 1), torch.ones(300, dtype=torch.long)
    losses = []
    for model in (tiny(), after):
        with isolated(0), torch.no_grad():
            losses.append(float(task.forget_loss(model, asked, objective("noise_image"))))
    assert losses[1] < 0.8 * losses[0]


def test_unsupported_tasks_and_splits_are_refused():
    with pytest.raises(GradPivotError, match="SA only supports diffusion"):
        Loop().run(METHOD, trained(), Classification(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0))
    with pytest.raises(GradPivotError, match="the split is 'index'"):
        Loop().run(METHOD, tiny(), TASK, ForgetSplit.by_index(data(), data(1), [0]))
    with pytest.raises(GradPivotError, match="penalty is -1"):
        SA(penalty=-1)


def test_configuration_and_spaces():
    assert make_method(json.loads(json.dumps(METHOD.to_dict()))) == METHOD
    assert method_class("sa") is SA
    assert len(SA.space()) == 10
    assert SA.protocol("paper").iterations == 15_000
    assert parse(["unlearn", "sa", "--penalty", "0.5"]).method == SA(penalty=0.5)
