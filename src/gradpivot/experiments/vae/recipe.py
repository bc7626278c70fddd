"""The paper's VAE figure: the latent space of a small autoencoder of digits, a digit forgotten over γ.

The paper prints neither network nor training; these are ours (docs/paper-notes.md).
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
    """Everything that decides the figure but γ, the digit and the seed.

    Attributes:
        name: Of the data.
        load: Gives (train, test) of (image, digit).
        autoencoder: Makes a new one, with two latent dimensions.
        recogniser: Makes a new classifier, which says what the map shows.
        training: Of the autoencoder, original and retrained.
        recogniser_training: Of the classifier.
        recogniser_least: Test accuracy below which its word counts for nothing.
        method: CUP with everything but γ.
        forgets: What the forgetting loss may change: see :class:`gradpivot.tasks.vae.Autoencoding`.
        gammas: The panels.
        side: The drawn map has side × side images.
        judged_side: The judged one is finer.
        reference_images: Real images, of the digits that are kept, that the judged map is compared with.
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
    """A recipe by its name; torch is imported only when it is asked for.

    Args:
        preset: ``full``, MNIST; or ``small``, scikit-learn's 8×8 digits, offline and in about a minute.
        protocol: ``clean``: the hinge in the decoder. ``paper``: −ELBO in the whole model, as printed, in the
            literature's settings.

    Raises:
        GradPivotError: for another name.
    """
    from gradpivot.data import load_digits, load_mnist
    from gradpivot.models import VAE, Recogniser

    clean = protocol == "clean"
    # λ of SGD for losses in nats per pixel, whose gradients are short; it falls to zero, and the other digits recover.
    settings: dict[str, Any] = {}
    if clean:
        settings = {"objective": "hinge", "lr": 0.03, "schedule": "cosine", "batch_size": 256}
        # How much of a picture is forgotten has no agreed scale yet: γ is the pivot's angle here.
        settings |= {"dial": "angle", "momentum": 0.9, "max_norm": 1.0}
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
            method=CUP.protocol(protocol, **{**settings, "batch_size": 16, "epochs": 10}),
            forgets=forgets,
            gammas=(0.0, 0.3, 0.7),
            side=12,
            judged_side=30,
        )
    raise GradPivotError(f"there is no preset {preset!r}; choose full or small")
