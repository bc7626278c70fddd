"""Description of a problem's images, from which models are built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from gradpivot.models.pixels import Pixels

__all__ = ["CIFAR10_MEAN", "CIFAR10_STD", "Images"]

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)
"""Per channel, over the 50,000 training images."""

_KNOWN: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none": ((0.0,), (1.0,)),
    "cifar10": (CIFAR10_MEAN, CIFAR10_STD),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@dataclass(frozen=True, kw_only=True)
class Images:
    """The images of a classification problem.

    Attributes:
        channels: Channels: 3 for colour, 1 for grey.
        size: Height and width.
        classes: Number of classes.
        mean: Mean to subtract from values in [0, 1], per channel or one for all.
        std: Standard deviation to divide by, per channel or one for all.
        stored: ``bytes`` (uint8, 0 … 255), or ``floats`` that need no conversion.
    """

    channels: int = 3
    size: int = 32
    classes: int = 10
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    stored: str = "bytes"

    def __post_init__(self) -> None:
        if self.stored not in ("bytes", "floats"):
            raise GradPivotError(f"stored is {self.stored!r}; choose bytes or floats")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise GradPivotError(
                    f"the {name} has {len(values)} numbers, but images have {self.channels} channels; give one per "
                    f"channel, or one for all"
                )
        if not all(math.isfinite(value) for value in self.mean):
            raise GradPivotError(f"the mean is {self.mean}; it must be finite")
        if not all(0 < value < math.inf for value in self.std):
            raise GradPivotError(f"the std is {self.std}; it must be finite and > 0")

    @property
    def need_pixels(self) -> bool:
        """Whether a network needs :class:`~gradpivot.models.pixels.Pixels` in front."""
        return self.stored == "bytes" or (self.mean, self.std) != _KNOWN["none"]

    def pixels(self) -> Pixels:
        """The layer that converts and normalises them."""
        from gradpivot.models.pixels import Pixels

        return Pixels(self.mean, self.std)

    def normalised(self, how: str) -> Images:
        """The same images with another normalisation: none, cifar10, imagenet, or numbers ``mean/std``.

        Raises:
            GradPivotError: if ``how`` is anything else.
        """
        if how in _KNOWN:
            mean, std = _KNOWN[how]
            return replace(self, mean=mean, std=std)
        try:
            mean, std = (tuple(map(float, part.split(","))) for part in how.split("/"))
        except ValueError:
            raise GradPivotError(
                f"the normalisation is {how!r}; write {', '.join(_KNOWN)}, or mean/std with a number per channel, for "
                f"example 0.49,0.48,0.45/0.25,0.24,0.26"
            ) from None
        return replace(self, mean=mean, std=std)
