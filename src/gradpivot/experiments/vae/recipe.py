"""Recipe of the paper's VAE figure: the latent space of a small autoencoder that forgets a digit, for several γ.

The paper gives neither network nor training; these are ours (docs/paper-notes.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gradpivot.errors import GradPivotError
from gradpivot.methods import CUP, Retrain

if TYPE_CHECKING:
    from gradpivot.models import VAE, Recogniser

__all__ = ["VaeRecipe", "vae_recipe"]


@dataclass(frozen=True, kw_only=True)
class VaeRecipe:
    """Settings of the VAE experiment except the digit and the seed.

    Attributes:
        name: Name of the data.
        load: Returns (train, test) datasets of (image, digit).
        autoencoder: Builds an autoencoder with two latent dimensions.
        recogniser: Builds the classifier that labels the map.
        training: Training recipe of the autoencoder, original and retrained.
        recogniser_training: Training recipe of the classifier.
        recogniser_least: Minimum test accuracy of the classifier.
        method: CUP with all settings except γ.
        forgets: Parameters that the forget loss may change: see :class:`gradpivot.tasks.vae.Autoencoding`.
        gammas: Values of γ, one panel each.
        side: The drawn map has side × side images.
        judged_side: Side of the finer map used for scoring.
        reference_images: Number of real images of the other digits that the map is compared with.
    """

    name: str
    load: Callable[[], tuple[Any, Any]]
    autoencoder: Callable[[], VAE]
    recogniser: Callable[[], Recogniser]
    training: Retrain
    recogniser_training: Retrain
    recogniser_least: float
    method: CUP
    forgets: Literal["decoder", "model"] = "decoder"
    gammas: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    side: int = 20
    judged_side: int = 60
    reference_images: int = 10_000


_AUTOENCODER = Retrain(lr=3e-3, epochs=12, batch_size=128, optimizer="adam", weight_decay=0.0, schedule="one_cycle")
_RECOGNISER = Retrain(lr=0.1, epochs=4, batch_size=128, weight_decay=5e-4, schedule="one_cycle", nesterov=True)


def vae_recipe(preset: str = "full", protocol: str = "clean") -> VaeRecipe:
    """A VAE recipe by name; imports torch on first use.

    Args:
        preset: ``full`` (MNIST) or ``small`` (scikit-learn's 8×8 digits, offline, about a minute).
        protocol: ``clean`` (hinge, decoder only) or ``paper`` (−ELBO on the whole model, as printed, with settings
            from the literature).

    Raises:
        GradPivotError: For any other name.
    """
    from gradpivot.data import load_digits, load_mnist
    from gradpivot.models import VAE, Recogniser

    clean = protocol == "clean"
    # Losses in nats per pixel have small gradients, hence the large learning rate. Over several passes other digits
    # recover.
    settings: dict[str, Any] = {}
    if clean:
        settings = {"objective": "hinge", "lr": 0.1, "momentum": 0.9, "epochs": 20, "batch_size": 256}
        settings |= {"retain_batch_size": 512}
    forgets: Literal["decoder", "model"] = "decoder" if clean else "model"
    if preset == "full":
        return VaeRecipe(
            name="mnist",
            load=load_mnist,
            autoencoder=VAE,
            recogniser=Recogniser,
            training=_AUTOENCODER,
            recogniser_training=_RECOGNISER,
            recogniser_least=0.99,
            method=CUP.protocol(protocol, **settings),
            forgets=forgets,
        )
    if preset == "small":
        return VaeRecipe(
            name="digits",
            load=load_digits,
            autoencoder=partial(VAE, 2, (64, 32), size=8),
            recogniser=partial(Recogniser, size=8),
            training=replace(_AUTOENCODER, epochs=100, batch_size=64),
            recogniser_training=replace(_RECOGNISER, epochs=20, batch_size=32),
            recogniser_least=0.95,
            method=CUP.protocol(protocol, **{**settings, "batch_size": 16, "retain_batch_size": 16, "epochs": 10}),
            forgets=forgets,
            gammas=(0.0, 0.3, 0.7),
            side=12,
            judged_side=30,
        )
    raise GradPivotError(f"there is no preset {preset!r}; choose full or small")
