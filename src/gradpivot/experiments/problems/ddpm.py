"""Class-conditional diffusion models: MNIST at 16×16, which a CPU trains in about an hour, and the paper's CIFAR-10."""

from __future__ import annotations

from gradpivot.evaluate import Judging
from gradpivot.experiments.problem import Problem
from gradpivot.methods import Retrain

__all__ = ["cifar10_ddpm", "mnist_ddpm"]

DDPM_SETTINGS = {"batch_size": 128, "augment": "none"}
"""The paper's batches. Shifted images would teach a generator black borders."""


def mnist_ddpm() -> Problem:
    """Digits at 16×16 and 0.65 million weights; torch and diffusers are imported only when it is asked for."""
    from gradpivot.data import load_mnist16
    from gradpivot.models import small_unet
    from gradpivot.tasks import Diffusion

    return Problem(
        name="mnist-ddpm",
        load=load_mnist16,
        model=small_unet,
        training=Retrain(optimizer="adam", lr=1e-3, epochs=3, batch_size=128, weight_decay=0, max_norm=1.0, ema=0.999),
        task=Diffusion(classes=10),
        settings=DDPM_SETTINGS,
        # By the classifier's own features distances are smaller than Inception's; 100 is far beyond anything legible.
        judging=Judging(classifier="mnist16", rescale=100.0, forgotten_samples=500),
    )


def cifar10_ddpm() -> Problem:
    """The paper's: 80,000 iterations of Adam at λ = 1e-4 in batches of 128, which are 205 passes; 35.8 M weights.

    Averaged with a decay of 0.9999 as DDPM was; the paper does not say.
    """
    from gradpivot.data import load_cifar10
    from gradpivot.models import paper_unet
    from gradpivot.tasks import Diffusion

    return Problem(
        name="cifar10-ddpm",
        load=load_cifar10,
        model=paper_unet,
        training=Retrain(
            optimizer="adam",
            lr=1e-4,
            epochs=205,
            batch_size=128,
            weight_decay=0,
            schedule="constant",
            max_norm=1.0,
            ema=0.9999,
        ),
        task=Diffusion(classes=10),
        settings=DDPM_SETTINGS,
        # The paper's judge is a ResNet trained on the same data; 94 % is what the one at hand is right on.
        judging=Judging(classifier="cifar10", least=0.9, features=("inception",), samples=500),
    )
