"""Randomness without global side effects: derived seeds, and a fence around everything we run.

The library never leaves the caller's generators changed. Inside the fence each step and each sample is seeded by what
it *is* (seed, purpose, position), not by what ran before, so numbers do not depend on workers or resuming.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["derive", "isolated", "reseed"]


def derive(seed: int, *position: int | str) -> int:
    """A seed for one place in a run: a 63-bit hash of the run's seed and the place's name and numbers."""
    text = "/".join(str(part) for part in (seed, *position))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def reseed(seed: int) -> None:
    """Seed torch (CPU and CUDA), NumPy and ``random``; only ever called inside :func:`isolated`."""
    # torch.manual_seed asks every kind of device there might be, which takes 150 µs; this takes 2.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - people's datasets draw from the legacy global generator


@contextmanager
def isolated(seed: int | None = None) -> Iterator[None]:
    """Run a block on forked generators; the caller's torch, NumPy and ``random`` states come back after it."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - see reseed
    with torch.random.fork_rng():
        try:
            if seed is not None:
                reseed(seed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002 - see reseed
