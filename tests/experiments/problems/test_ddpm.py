from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import TensorDataset

from gradpivot.cli import main
from gradpivot.data.readers.mnist import _halved
from gradpivot.experiments.problem import find_problem
from gradpivot.models.ddpm import small_unet
from gradpivot.runs.training import train_model

MODULE = '''
import torch
from torch.utils.data import TensorDataset
from gradpivot.methods.retrain import Retrain
from gradpivot.models.ddpm import small_unet
from gradpivot.experiments.problem import Problem
from gradpivot.tasks.diffusion.denoising import Diffusion

def data(seed):
    labels = torch.arange(24) % 3
    images = torch.randint(0, 255, (24, 1, 8, 8), generator=torch.Generator().manual_seed(seed))
    return TensorDataset(images.to(torch.uint8), labels)

def problem():
    return Problem(name="tiny-ddpm", load=lambda: (data(0), data(1)), model=lambda: small_unet(size=8, classes=3),
                   task=Diffusion(classes=3, timesteps=20), settings={"batch_size": 8},
                   training=Retrain(optimizer="adam", lr=1e-3, epochs=1, batch_size=8, weight_decay=0, ema=0.9))

def make():
    """Somebody's own UNet2DModel."""
    from diffusers import UNet2DModel
    return UNet2DModel(sample_size=8, in_channels=1, out_channels=1, num_class_embeds=4, layers_per_block=1,
                       block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownBlock2D",) * 2,
                       up_block_types=("UpBlock2D",) * 2)

def too_few():
    from diffusers import UNet2DModel
    return UNet2DModel(sample_size=8, in_channels=1, out_channels=1, num_class_embeds=3, layers_per_block=1,
                       block_out_channels=(8, 16), norm_num_groups=4, down_block_types=("DownBlock2D",) * 2,
                       up_block_types=("UpBlock2D",) * 2)
'''


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / "my_ddpm.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def made_digits(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 1, 16, 16), generator=generator)
    return TensorDataset(images.to(torch.uint8), torch.arange(count) % 10)


def test_halving_adds_a_border_and_takes_means():
    images = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    images[0, 0, 0:2, 0:2] = torch.tensor([[10, 20], [30, 41]])
    halved = _halved(images)
    assert halved.shape == (1, 1, 16, 16)
    assert halved.dtype == torch.uint8
    assert int(halved[0, 0, 1, 1]) == 25
    assert int(halved.sum()) == 25


@pytest.mark.slow
@pytest.mark.numeric
def test_mnist_ddpm_trains_and_resumes_bit_for_bit(tmp_path):
    problem = find_problem("mnist-ddpm")
    problem = replace(
        problem,
        load=lambda: (made_digits(24, 0), made_digits(16, 1)),
        training=replace(problem.training, epochs=2, batch_size=8),
    )
    whole = train_model(problem, seed=1)
    assert whole.test_accuracy is None
    # 1 is what predicting no noise at all costs.
    assert 0 < whole.test_loss < 1
    assert len(whole.epochs) == 2

    class KilledError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KilledError

    options = {"seed": 1, "checkpoint": tmp_path / "c.pt", "checkpoint_seconds": 0}
    with pytest.raises(KilledError):
        train_model(problem, progress=stop, **options)
    resumed = train_model(problem, **options)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    assert resumed.test_loss == whole.test_loss


def test_cifar10_ddpm_is_the_papers():
    problem = find_problem("cifar10-ddpm")
    recipe = problem.training
    assert (recipe.optimizer, recipe.lr, recipe.batch_size) == ("adam", 1e-4, 128)
    # 50,000 images in batches of 128 are 391 steps a pass.
    assert abs(recipe.epochs * 391 - 80_000) < 391
    task = problem.task
    assert (task.timesteps, task.beta_start, task.beta_end, task.label_dropout) == (1000, 1e-4, 0.02, 0.1)


def test_ones_own_unet_goes_in_by_import_path(here, capsys):
    words = ["--problem", "my_ddpm:problem", "--model", "my_ddpm:make"]
    assert main(["train", *words, "--out", "original"]) == 0
    assert "Loss " in capsys.readouterr().out
    start = ["--weights", "original/model.safetensors", "--classes", "1"]
    assert main(["unlearn", "cup", *words, *start, "--dial", "angle", "--epochs", "1", "--out", "cup"]) == 0
    assert "(no UA or RA: samples were not judged)" in capsys.readouterr().out
    before, after = (load_file(f"{folder}/model.safetensors") for folder in ("original", "cup"))
    assert before.keys() == after.keys()
    assert any(not torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_a_unet_without_room_for_no_class_is_told_before_anything_runs(here, capsys):
    words = ["--problem", "my_ddpm:problem", "--model", "my_ddpm:too_few"]
    assert main(["train", *words, "--out", "original"]) == 1
    assert "num_class_embeds=4" in capsys.readouterr().err


def test_scores_of_a_classifier_are_refused_for_a_generator(here, capsys):
    words = ["--problem", "my_ddpm:problem", "--classes", "1", "--out", "trace"]
    assert main(["trace", "cup", *words, "--values", "0.5"]) == 1
    assert "predicts no label" in capsys.readouterr().err


def test_small_unet_is_the_problems():
    with torch.no_grad():
        model = find_problem("mnist-ddpm").model()
    assert model.config.sample_size == small_unet().config.sample_size == 16
