"""A tiny generator problem and the classifier that judges it, as the text of a module of a user's."""

from __future__ import annotations

MODULE = '''
from functools import partial
import torch
from torch.utils.data import TensorDataset
from gradpivot.methods.retrain import Retrain
from gradpivot.models.ddpm import small_unet
from gradpivot.models.recogniser import Recogniser
from gradpivot.evaluate.generators.judging import Judging
from gradpivot.experiments.problem import Problem
from gradpivot.tasks.diffusion.denoising import Diffusion

def patches(seed):
    """Bright in another quarter for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 3
    images = torch.randint(0, 60, (60, 1, 8, 8), generator=generator)
    for image, label in zip(images, labels):
        image[0, 4 * (label // 2):4 * (label // 2) + 4, 4 * (label % 2):4 * (label % 2) + 4] += 180
    return TensorDataset(images.to(torch.uint8), labels)

def load():
    return patches(0), patches(1)

def seer():
    return Problem(name="seer", load=load, model=partial(Recogniser, 3, size=8, width=8),
                   training=Retrain(epochs=LEARN, lr=0.1, batch_size=20))

def generator():
    return Problem(name="tiny-ddpm", load=load, model=partial(small_unet, size=8, classes=3),
                   training=Retrain(optimizer="adam", lr=1e-3, epochs=1, batch_size=20, weight_decay=0),
                   task=Diffusion(classes=3, timesteps=20), settings={"batch_size": 20, "augment": "none"},
                   judging=Judging(classifier=f"{__name__}:seer", samples=4, columns=2, steps=2))
'''
