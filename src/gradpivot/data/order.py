"""Order of samples and batches: a pure function of seed and epoch, so a resumed run sees the same batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from gradpivot.runtime import derive

__all__ = ["batch_count", "cut", "default_batch_size", "paired_order", "shuffled", "smallest_batch"]


def shuffled(indices: np.ndarray, seed: int, *position: int | str) -> np.ndarray:
    """Permute ``indices``; the order depends only on seed and position."""
    generator = torch.Generator().manual_seed(derive(seed, "order", *position))
    permuted: np.ndarray = indices[torch.randperm(len(indices), generator=generator).numpy()]
    return permuted


def batch_count(samples: int, batch_size: int) -> int:
    """Number of batches :func:`cut` returns."""
    count = -(-samples // batch_size)
    return count - 1 if batch_size > 1 and count > 1 and samples % batch_size == 1 else count


def smallest_batch(samples: int, batch_size: int) -> int:
    """Size of the smallest batch :func:`cut` returns."""
    rest = samples - batch_size * (batch_count(samples, batch_size) - 1)
    return min(rest, batch_size) if rest < samples else samples


def cut(indices: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Split into consecutive batches; the last may be smaller.

    A single leftover sample joins the previous batch: BatchNorm in train mode needs at least two.
    """
    starts = [number * batch_size for number in range(batch_count(len(indices), batch_size))]
    return [indices[start:end] for start, end in pairwise([*starts, len(indices)])]


def paired_order(
    forget: np.ndarray, retain: np.ndarray, batch_size: int, seed: int, epoch: int, retain_batch_size: int | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Batches of one epoch: every forget sample once, each batch paired with random retain samples.

    A retain batch has the size of its forget batch, or ``retain_batch_size`` if given (at most the retain set). When
    the retain set is used up, it is reshuffled.
    """
    chosen = cut(shuffled(forget, seed, "forget", epoch), batch_size)
    sizes = [len(batch) if retain_batch_size is None else min(retain_batch_size, len(retain)) for batch in chosen]
    rounds = -(-sum(sizes) // len(retain))
    fresh = np.concatenate([shuffled(retain, seed, "retain", epoch, r) for r in range(rounds)])
    return chosen, np.split(fresh[: sum(sizes)], np.cumsum(sizes)[:-1])


def default_batch_size(n_forget: int) -> int:
    """The power of two between 8 and 256 that gives about 16 steps per epoch.

    The literature's 256, for 5,000 images, would forget 100 samples in a single step.
    """
    ideal = n_forget / 16
    size = 8
    while size < 256 and ideal >= 1.5 * size:
        size *= 2
    return size
