"""Which samples form which batch: a pure function of seed and epoch, so a resumed run sees the same batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from gradpivot.runtime import derive

__all__ = ["batch_count", "cut", "default_batch_size", "paired_order", "shuffled", "smallest_batch"]


def shuffled(indices: np.ndarray, seed: int, *position: int | str) -> np.ndarray:
    """A permutation of ``indices`` that depends on the seed and the position only."""
    generator = torch.Generator().manual_seed(derive(seed, "order", *position))
    permuted: np.ndarray = indices[torch.randperm(len(indices), generator=generator).numpy()]
    return permuted


def batch_count(samples: int, batch_size: int) -> int:
    """How many batches :func:`cut` makes."""
    count = -(-samples // batch_size)
    return count - 1 if batch_size > 1 and count > 1 and samples % batch_size == 1 else count


def smallest_batch(samples: int, batch_size: int) -> int:
    """How many samples the smallest batch that :func:`cut` makes has."""
    rest = samples - batch_size * (batch_count(samples, batch_size) - 1)
    return min(rest, batch_size) if rest < samples else samples


def cut(indices: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Consecutive batches; the last one may be smaller, but a last single sample joins the batch before it.

    One sample has no variance to normalise by: BatchNorm in train mode refuses it.
    """
    starts = [number * batch_size for number in range(batch_count(len(indices), batch_size))]
    return [indices[start:end] for start, end in pairwise([*starts, len(indices)])]


def paired_order(
    forget: np.ndarray, retain: np.ndarray, batch_size: int, seed: int, epoch: int, retain_batch_size: int | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """One epoch: every forget sample once, beside a fresh random slice of the retain set.

    A retain batch is as large as its forget batch, or ``retain_batch_size`` where that is given (at most all of the
    retain set). Where an epoch needs more than there is to retain, the retain set is gone through again in a new order.
    """
    chosen = cut(shuffled(forget, seed, "forget", epoch), batch_size)
    sizes = [len(batch) if retain_batch_size is None else min(retain_batch_size, len(retain)) for batch in chosen]
    rounds = -(-sum(sizes) // len(retain))
    fresh = np.concatenate([shuffled(retain, seed, "retain", epoch, r) for r in range(rounds)])
    return chosen, np.split(fresh[: sum(sizes)], np.cumsum(sizes)[:-1])


def default_batch_size(n_forget: int) -> int:
    """The power of two that gives about 16 steps an epoch, between 8 and 256.

    A fixed 256 (the literature's, for 5,000 images) would turn a request to forget 100 samples into one step.
    """
    ideal = n_forget / 16
    size = 8
    while size < 256 and ideal >= 1.5 * size:
        size *= 2
    return size
