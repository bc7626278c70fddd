"""Random augmentation of whole batches on their device: crops and flips, drawn per sample and epoch.

What a sample looks like in an epoch is a function of (seed, epoch, its index) alone: not of the batch it is in, the
process that fetches it, or where a run was resumed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from gradpivot.errors import GradPivotError
from gradpivot.runtime import derive

__all__ = ["AUGMENTATIONS", "Augmentation", "check_augmentable"]

AUGMENTATIONS = ("none", "crop", "crop_flip")
"""``crop``: shifted by up to 4 pixels, black beyond the edge. ``crop_flip``: that, and mirrored half of the time."""
_PADDING = 4


class Augmentation:
    """One epoch's random crops and flips.

    Args:
        kind: One of :data:`AUGMENTATIONS`.
        samples: How many samples the data set has.
        seed: The run's seed.
        epoch: Which epoch.
    """

    def __init__(self, kind: str, samples: int, seed: int, epoch: int) -> None:
        self._kind = kind
        # A row for every sample, drawn or not: 2 ms an epoch for 50,000, and no row depends on what is fetched.
        generator = torch.Generator().manual_seed(derive(seed, "augmentation", epoch))
        self._shifts = torch.randint(0, 2 * _PADDING + 1, (samples, 2), generator=generator)
        self._flips = torch.randint(0, 2, (samples,), generator=generator, dtype=torch.bool)

    def __call__(self, images: Tensor, indices: np.ndarray) -> Tensor:
        """The images (n, c, h, w) of these samples, shifted and mirrored; memory is channels last."""
        at = torch.from_numpy(np.asarray(indices))
        shifts = self._shifts[at].to(images.device, non_blocking=True)
        height, width = images.shape[2:]
        rows = torch.arange(height, device=images.device) + shifts[:, :1]
        columns = torch.arange(width, device=images.device) + shifts[:, 1:]
        if self._kind == "crop_flip":
            flips = self._flips[at].to(images.device, non_blocking=True)
            columns = torch.where(flips[:, None], columns.flip(1), columns)
        padded = pad(images, [_PADDING] * 4)
        sample = torch.arange(len(images), device=images.device)
        # Indices on both sides of the channels put these last: (n, h, w, c), which is how convolutions want them.
        chosen = padded[sample[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return chosen.permute(0, 3, 1, 2)


def check_augmentable(tensors: tuple[Tensor, ...] | None, kind: str) -> None:
    """Raise unless the data are images in tensors, which crops and flips are for.

    Raises:
        GradPivotError: with the way out.
    """
    if tensors is None:
        raise GradPivotError(
            f"augment is {kind!r}, but the data are not tensors; let the dataset draw its own augmentation, and use "
            f"augment='none'"
        )
    if tensors[0].ndim != 4:
        raise GradPivotError(
            f"augment is {kind!r}, but a sample has the shape {tuple(tensors[0].shape[1:])}, not that of an image "
            f"(channels, height, width); use augment='none'"
        )
