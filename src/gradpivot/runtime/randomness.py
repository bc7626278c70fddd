"""Randomness without global side effects: derived seeds, and a fence around everything we run.

The library never leaves the caller's generators changed. Inside the fence each step and each sample is seeded by what
it *is* (seed, purpose, position), not by what ran before, so numbers do not depend on workers or resuming.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch

from gradpivot.errors import GradPivotError

__all__ = ["derive", "draw_labels", "draw_rows", "draw_strata", "drawing_for", "isolated", "reseed", "rewinder"]

Rows = Callable[[int, torch.Generator | None], torch.Tensor]
"""Draws one row for each of n samples from a generator; from torch's own if None."""


def derive(seed: int, *position: int | str) -> int:
    """A seed for one place in a run: a 63-bit hash of the run's seed and the place's name and numbers."""
    text = "/".join(str(part) for part in (seed, *position))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def reseed(seed: int) -> None:
    """Seed torch (CPU, CUDA and MPS), NumPy and ``random``; only ever called inside :func:`isolated`."""
    # torch.manual_seed asks every kind of device there might be, which takes 150 µs; this takes 2.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if _has_mps():
        torch.mps.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - people's datasets draw from the legacy global generator


@contextmanager
def isolated(seed: int | None = None) -> Iterator[None]:
    """Run a block on forked generators; the caller's torch, NumPy and ``random`` states come back after it."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - see reseed
    # torch forks the generators of one kind of device beside the CPU's; there is one Apple GPU at most.
    mps_state = torch.mps.get_rng_state() if _has_mps() else None
    with torch.random.fork_rng(devices=_devices()):
        try:
            if seed is not None:
                reseed(seed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002 - see reseed
            if mps_state is not None:
                torch.mps.set_rng_state(mps_state)


def _devices() -> list[int] | None:
    """The GPUs whose generators may be used: this process's own among several processes, else all."""
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    if grouped and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return [torch.cuda.current_device()]
    return None


def _has_mps() -> bool:
    """Whether there is an Apple GPU that this process may use: one forked from a process that did may not."""
    return torch.backends.mps.is_available() and not torch.mps._is_in_bad_fork()


def rewinder() -> Callable[[], None]:
    """What brings every generator back to where it is now, those of :func:`drawing_for` too."""
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - see reseed
    used = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    gpus = [(gpu, torch.cuda.get_rng_state(gpu)) for gpu in _devices() or used]
    mps = torch.mps.get_rng_state() if _has_mps() else None
    draws = _draws.get()
    drawn = draws.states() if draws else {}

    def rewind() -> None:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002 - see reseed
        torch.set_rng_state(cpu)
        for gpu, state in gpus:
            torch.cuda.set_rng_state(state, gpu)
        if mps is not None:
            torch.mps.set_rng_state(mps)
        if draws:
            draws.bring_back(drawn)

    return rewind


class _Draws:
    """Draws for a whole batch of which one process has a part."""

    def __init__(self, start: int, stop: int, total: int, seed: int) -> None:
        self._start, self._stop, self._total, self._seed = start, stop, total, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def states(self) -> dict[torch.device, torch.Tensor]:
        return {device: generator.get_state() for device, generator in self._generators.items()}

    def bring_back(self, states: dict[torch.device, torch.Tensor]) -> None:
        self._generators = {d: torch.Generator(d).set_state(state) for d, state in states.items()}

    def rows(self, draw: Rows, count: int, device: torch.device) -> torch.Tensor:
        if count != self._stop - self._start:
            raise GradPivotError(
                f"random numbers for {count} samples are asked for, and this process has {self._stop - self._start} of "
                f"the batch's {self._total}; run this loss in one process"
            )
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return draw(self._total, self._generators[device])[self._start : self._stop]


_draws: ContextVar[_Draws | None] = ContextVar("draws", default=None)


@contextmanager
def drawing_for(start: int, stop: int, total: int, seed: int) -> Iterator[None]:
    """In the block rows are drawn for all ``total`` samples of a batch under ``seed``, and those of a part taken.

    So several processes together draw what one would.
    """
    token = _draws.set(_Draws(start, stop, total, seed))
    try:
        yield
    finally:
        _draws.reset(token)


def draw_labels(classes: int, count: int, device: torch.device) -> torch.Tensor:
    """``count`` labels, uniform over the classes: see :func:`draw_rows`."""
    return draw_rows(
        lambda n, generator: torch.randint(classes, (n,), generator=generator, device=device), count, device
    )


def draw_strata(levels: int, count: int, device: torch.device) -> torch.Tensor:
    """``count`` whole numbers below ``levels``, each uniform, and together spread evenly: see :func:`draw_rows`.

    One in each of n equal parts of the range, in random order (stratified sampling): the mean over a batch of something
    that depends on the level varies far less than with independent draws.
    """

    def draw(n: int, generator: torch.Generator | None) -> torch.Tensor:
        order = torch.randperm(n, generator=generator, device=device)
        within = torch.rand(n, generator=generator, device=device, dtype=torch.float64)
        return ((order + within) * (levels / n)).long().clamp(max=levels - 1)

    return draw_rows(draw, count, device)


def draw_rows(draw: Rows, count: int, device: torch.device) -> torch.Tensor:
    """A random row for each of ``count`` samples: from torch's generator, or see :func:`drawing_for`.

    Args:
        draw: Gives n rows from a generator on ``device``.
        count: Samples.
        device: Where the rows are drawn.
    """
    draws = _draws.get()
    return draw(count, None) if draws is None else draws.rows(draw, count, device)
