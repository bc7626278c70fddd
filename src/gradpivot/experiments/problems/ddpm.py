"""Class-conditional diffusion models: MNIST at 16×16, which a CPU trains in about an hour, and the paper's CIFAR-10."""

from __future__ import annotations

from functools import partial

from gradpivot.data import load_cifar10, load_mnist16
from gradpivot.evaluate import Judging
from gradpivot.experiments.problem import Problem
from gradpivot.methods import Retrain
from gradpivot.models import paper_unet, small_unet
from gradpivot.tasks import Diffusion

__all__ = ["cifar10_ddpm", "mnist_ddpm"]

# The paper's batches. Shifted images would teach a generator black borders.
_diffusion = partial(Problem, task=Diffusion(classes=10), settings={"batch_size": 128, "augment": "none"})
_adam = partial(Retrain, optimizer="adam", batch_size=128, weight_decay=0, max_norm=1.0)


def mnist_ddpm() -> Problem:
    """Digits at 16×16 and 0.65 million weights."""
    return _diffusion(
        name="mnist-ddpm",
        load=load_mnist16,
        model=small_unet,
        training=_adam(lr=1e-3, epochs=3, ema=0.999),
        # By the classifier's own features distances are smaller than Inception's; 100 is far beyond anything legible.
        judging=Judging(classifier="mnist16", rescale=100.0, forgotten_samples=500),
    )


def cifar10_ddpm() -> Problem:
    """The paper's: 80,000 iterations of Adam at λ = 1e-4 in batches of 128, which are 205 passes; 35.8 M weights.

    Averaged with a decay of 0.9999 as DDPM was; the paper does not say.
    """
    return _diffusion(
        name="cifar10-ddpm",
        load=load_cifar10,
        model=paper_unet,
        training=_adam(lr=1e-4, epochs=205, schedule="constant", ema=0.9999),
        # The paper's judge is a ResNet trained on the same data; 94 % is what the one at hand is right on.
        judging=Judging(classifier="cifar10", least=0.9, features=("inception",), samples=500),
    )
