"""Random numbers without global side effects.

The caller's generators are restored after every call. Each step and sample gets a seed derived from the run's seed, the
purpose and the position, so results depend neither on the number of workers nor on resuming.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import numpy as np
import torch

from gradpivot.errors import GradPivotError

__all__ = ["derive", "draw_labels", "draw_rows", "draw_strata", "drawing_for", "isolated", "reseed", "rewinder"]

Rows = Callable[[int, torch.Generator | None], torch.Tensor]
"""Draws n rows, one per sample, from the given generator; None means torch's global generator."""


def derive(seed: int, *position: int | str) -> int:
    """Derive a seed for one position in a run: a 63-bit hash of the run's seed and the position."""
    text = "/".join(str(part) for part in (seed, *position))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def reseed(seed: int) -> None:
    """Seed torch (CPU, CUDA and MPS), NumPy and ``random``. Call only inside :func:`isolated`."""
    # torch.manual_seed queries every device type, which takes 150 µs; this takes 2 µs.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if _has_mps():
        torch.mps.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - user datasets draw from the legacy global generator


@contextmanager
def isolated(seed: int | None = None) -> Iterator[None]:
    """Run the block on forked generators, then restore the caller's torch, NumPy and ``random`` states."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - see reseed
    # fork_rng covers the CPU and one other device type; save MPS separately (at most one device).
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
    """GPUs to fork: this process's own in a distributed run; None for all otherwise."""
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    if grouped and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return [torch.cuda.current_device()]
    return None


def _has_mps() -> bool:
    """Whether MPS is available and usable: not in a child forked after MPS was initialised."""
    return torch.backends.mps.is_available() and not torch.mps._is_in_bad_fork()


def rewinder() -> Callable[[], None]:
    """Return a function that restores every generator's current state, including those of :func:`drawing_for`."""
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
            draws.restore(drawn)

    return rewind


class _Draws:
    """Draws for a whole batch and returns this process's part."""

    def __init__(self, start: int, stop: int, total: int, seed: int | Callable[[], int]) -> None:
        self._start, self._stop, self._total, self._seed = start, stop, total, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __enter__(self) -> None:
        self._token = _draws.set(self)

    def __exit__(self, *_: object) -> None:
        _draws.reset(self._token)

    def states(self) -> dict[torch.device, torch.Tensor]:
        return {device: generator.get_state() for device, generator in self._generators.items()}

    def restore(self, states: dict[torch.device, torch.Tensor]) -> None:
        self._generators = {d: torch.Generator(d).set_state(state) for d, state in states.items()}

    def rows(self, draw: Rows, count: int, device: torch.device) -> torch.Tensor:
        if count != self._stop - self._start:
            raise GradPivotError(
                f"the loss draws random numbers for {count} samples, but this process has "
                f"{self._stop - self._start} of the batch's {self._total}; run it in one process"
            )
        if device not in self._generators:
            seed = self._seed if isinstance(self._seed, int) else self._seed()
            self._generators[device] = torch.Generator(device).manual_seed(seed)
        return draw(self._total, self._generators[device])[self._start : self._stop]


_draws: ContextVar[_Draws | None] = ContextVar("draws", default=None)


def drawing_for(start: int, stop: int, total: int, seed: int | Callable[[], int]) -> AbstractContextManager[None]:
    """Within the block, draw rows for all ``total`` samples of a batch and return rows ``start`` to ``stop``.

    Several processes together then draw what one process would. A seed given as a function is derived when needed.
    """
    return _Draws(start, stop, total, seed)


def draw_labels(classes: int, count: int, device: torch.device) -> torch.Tensor:
    """Draw ``count`` labels uniformly over the classes, as :func:`draw_rows` does."""
    return draw_rows(
        lambda n, generator: torch.randint(classes, (n,), generator=generator, device=device), count, device
    )


def draw_strata(levels: int, count: int, device: torch.device) -> torch.Tensor:
    """Draw ``count`` integers below ``levels`` by stratified sampling, as :func:`draw_rows` does.

    One from each of ``count`` equal intervals, in random order. A batch mean that depends on the level then varies far
    less than with independent draws.
    """

    def draw(n: int, generator: torch.Generator | None) -> torch.Tensor:
        order = torch.randperm(n, generator=generator, device=device)
        within = torch.rand(n, generator=generator, device=device, dtype=torch.float64)
        return ((order + within) * (levels / n)).long().clamp(max=levels - 1)

    return draw_rows(draw, count, device)


def draw_rows(draw: Rows, count: int, device: torch.device) -> torch.Tensor:
    """Draw a random row per sample from torch's generator, or as :func:`drawing_for` says.

    Args:
        draw: Draws n rows from a generator on ``device``.
        count: Number of samples.
        device: Device of the generator.
    """
    draws = _draws.get()
    return draw(count, None) if draws is None else draws.rows(draw, count, device)
