"""Random crops and flips, applied to a whole batch on its device.

A sample's augmentation depends only on seed, epoch and index: not on the batch, the process or where a run resumes.
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
"""``crop``: random crop after padding by 4 black pixels. ``crop_flip``: the same, and a random horizontal flip."""
_PADDING = 4


class Augmentation:
    """One epoch's random crops and flips.

    Args:
        kind: One of :data:`AUGMENTATIONS`.
        samples: Size of the dataset.
        seed: The run's seed.
        epoch: Epoch number.
    """

    def __init__(self, kind: str, samples: int, seed: int, epoch: int) -> None:
        self._kind = kind
        # Draw for every sample of the dataset, so that no draw depends on the batches (2 ms per epoch for 50,000).
        generator = torch.Generator().manual_seed(derive(seed, "augmentation", epoch))
        self._shifts = torch.randint(0, 2 * _PADDING + 1, (samples, 2), generator=generator)
        self._flips = torch.randint(0, 2, (samples,), generator=generator, dtype=torch.bool)

    def __call__(self, images: Tensor, indices: np.ndarray) -> Tensor:
        """Augment the images (n, c, h, w) of these samples; the result is in channels-last memory format."""
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
        # Indexing on both sides of the channels puts those last: (n, h, w, c), the fastest layout for convolutions.
        chosen = padded[sample[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return chosen.permute(0, 3, 1, 2)


def check_augmentable(tensors: tuple[Tensor, ...] | None, kind: str) -> None:
    """Check that the data are images in tensors.

    Raises:
        GradPivotError: if they are not.
    """
    if tensors is None:
        raise GradPivotError(
            f"augment is {kind!r}, but the data are not tensors; augment in the dataset and use augment='none'"
        )
    if tensors[0].ndim != 4:
        raise GradPivotError(
            f"augment is {kind!r}, but samples have shape {tuple(tensors[0].shape[1:])} instead of "
            f"(channels, height, width); use augment='none'"
        )
