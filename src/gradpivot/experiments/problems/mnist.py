"""MNIST and Fashion-MNIST with the small CNN: a run in seconds on one core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gradpivot.experiments.problem import Problem
from gradpivot.methods import Retrain
from gradpivot.models import Images

__all__ = ["fashion_mnist", "mnist", "mnist16"]


def mnist() -> Problem:
    """Handwritten digits; torch is imported only when it is asked for."""
    from gradpivot.data import load_mnist

    return _grey("mnist", load_mnist, epochs=5)


def mnist16() -> Problem:
    """The digits at 16×16, as ``mnist-ddpm`` draws them: the classifier that judges its samples."""
    from gradpivot.data import load_mnist16
    from gradpivot.models import Recogniser

    return replace(
        _grey("mnist16", load_mnist16, epochs=6, size=16),
        model=partial(Recogniser, size=16, width=128),
        training=Retrain(lr=0.1, epochs=6, batch_size=128, weight_decay=5e-4, schedule="one_cycle", nesterov=True),
    )


def fashion_mnist() -> Problem:
    """Kinds of clothing; torch is imported only when it is asked for."""
    from gradpivot.data import load_fashion_mnist

    return _grey("fashion-mnist", load_fashion_mnist, epochs=10)


def _grey(name: str, load: Callable[[], tuple[Any, Any]], epochs: int, size: int = 28) -> Problem:
    from gradpivot.models import find_model

    images = Images(channels=1, size=size, classes=10)
    return Problem(
        name=name,
        load=load,
        model=find_model("cnn", images),
        training=Retrain(lr=0.05, epochs=epochs, batch_size=128, weight_decay=5e-4, schedule="cosine"),
        # Digits and letters are not mirrored, and the literature does not shift them either.
        settings={"batch_size": 256, "augment": "none"},
        retain_scored=10_000,
        images=images,
    )
