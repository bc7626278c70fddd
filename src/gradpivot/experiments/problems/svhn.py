"""SVHN with ResNet-18, the paper's second problem: house numbers, without augmentation."""

from __future__ import annotations

from gradpivot.experiments.problem import Problem
from gradpivot.methods import Retrain
from gradpivot.models import Images

__all__ = ["svhn"]


def svhn() -> Problem:
    """The original is trained with the paper's recipe, which wants a GPU."""
    from gradpivot.data import load_svhn
    from gradpivot.models import resnet18

    return Problem(
        name="svhn",
        load=load_svhn,
        model=resnet18,
        training=Retrain.protocol("paper", augment="none"),
        settings={"batch_size": 256, "augment": "none"},
        retain_scored=5000,
        images=Images(channels=3, size=32, classes=10),
    )
