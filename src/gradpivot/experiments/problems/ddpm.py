"""Class-conditional diffusion models: MNIST at 16×16 (about an hour of training on a CPU) and the paper's CIFAR-10."""

from __future__ import annotations

from functools import partial

from gradpivot.data import load_cifar10, load_mnist16
from gradpivot.evaluate import Judging
from gradpivot.experiments.problem import Problem
from gradpivot.methods import Retrain
from gradpivot.models import paper_unet, small_unet
from gradpivot.tasks import Diffusion

__all__ = ["cifar10_ddpm", "mnist_ddpm"]

# The paper's batch size. No augmentation: shifted images would teach the generator black borders.
_diffusion = partial(Problem, task=Diffusion(classes=10), settings={"batch_size": 128, "augment": "none"})
_adam = partial(Retrain, optimizer="adam", batch_size=128, weight_decay=0, max_norm=1.0)


def mnist_ddpm() -> Problem:
    """Digits at 16×16; 0.65 million weights."""
    return _diffusion(
        name="mnist-ddpm",
        load=load_mnist16,
        model=small_unet,
        training=_adam(lr=1e-3, epochs=3, ema=0.999),
        # Distances in the classifier's features are smaller than Inception's; at 100 nothing is legible.
        judging=Judging(classifier="mnist16", rescale=100.0, forgotten_samples=500),
    )


def cifar10_ddpm() -> Problem:
    """The paper's model: 35.8 M weights, 80,000 iterations of Adam at λ = 1e-4 in batches of 128 (205 epochs).

    The weights' EMA decay is DDPM's 0.9999; the paper does not give one.
    """
    return _diffusion(
        name="cifar10-ddpm",
        load=load_cifar10,
        model=paper_unet,
        training=_adam(lr=1e-4, epochs=205, schedule="constant", ema=0.9999),
        # The paper's judge is a ResNet trained on the same data; ours has 94 % accuracy.
        judging=Judging(classifier="cifar10", least=0.9, features=("inception",), samples=500),
    )
