"""Checkpoints of a run in progress: one file, replaced atomically, loaded without code execution."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gradpivot.errors import GradPivotError
from gradpivot.runtime import replacing

__all__ = ["Checkpoint"]

_MAX_TIME_FRACTION = 0.02
"""Maximum fraction of the run time spent on writing checkpoints."""
_SECONDS_PER_FILE, _BYTES_PER_SECOND = 0.005, 200e6
"""Time to write a small file to disk, and the speed for a large one: a guess, replaced after the first write."""


class Checkpoint:
    """The checkpoint file of a run.

    Args:
        path: The file.
        key: Identifies the run (split, method, seed); a checkpoint with another key is refused.
        every_seconds: Interval between writes; 0 writes after every step. The first writes come sooner, so that a run
            that is killed often still advances: the interval starts at the shortest for which writing takes at most
            2 % of the run time, and doubles. Where writing is slow (130 MB for a ResNet-18 with momentum) that bound
            makes it longer than ``every_seconds``.

    Raises:
        GradPivotError: If the interval is negative or NaN.
    """

    def __init__(self, path: Path, key: str, every_seconds: float) -> None:
        if not every_seconds >= 0:
            raise GradPivotError(
                f"the checkpoint interval is {every_seconds:g} s; it must be ≥ 0, where 0 means after every step"
            )
        self._path, self._key, self._every = Path(path), key, every_seconds
        self._started = self._written = time.perf_counter()
        self._pause: float | None = None if every_seconds else 0.0
        self.seconds_before = 0.0
        """Wall-clock time of earlier, interrupted parts of this run."""

    def load(self) -> dict[str, Any] | None:
        """Load the saved state; None if there is no file.

        Raises:
            GradPivotError: If the file is damaged or belongs to another run.
        """
        if not self._path.exists():
            return None
        if self._path.is_dir():
            raise GradPivotError(f"the checkpoint {self._path} is a directory; give a file name")
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise GradPivotError(
                f"the checkpoint {self._path} is damaged or of another kind ({type(error).__name__}); delete it to "
                f"restart the run, or give another file"
            ) from error
        if not isinstance(saved, dict) or not {"key", "seconds", "state"} <= saved.keys():
            raise GradPivotError(
                f"{self._path} is not the checkpoint of a run; give another file. Load trained weights into the model "
                f"instead"
            )
        key, self.seconds_before, state = saved["key"], saved["seconds"], saved["state"]
        if key != self._key:
            raise GradPivotError(
                f"the checkpoint {self._path} belongs to another run (other data, method or seed); delete it or give "
                f"another file"
            )
        if self._every:
            self._pause = self._first_pause(self._path.stat().st_size)
        found: dict[str, Any] = state
        return found

    def save_if_due(self, state: Callable[[], dict[str, Any]]) -> None:
        """Write the state if the interval has passed."""
        if self._pause is None:
            self._pause = self._first_pause(_bytes_of(state()))
        now = time.perf_counter()
        if now - self._written < self._pause:
            return
        self.write(state(), self.seconds_before + now - self._started)
        self._written = time.perf_counter()
        if self._every:
            self._pause = max(min(self._every, 2 * self._pause), (self._written - now) / _MAX_TIME_FRACTION)

    def write(self, state: dict[str, Any], seconds: float) -> None:
        """Write the state of a run that took ``seconds`` so far."""
        # Through a file object: torch's own writer reports a full disk as "iostream error".
        with replacing(self._path) as temporary, temporary.open("wb") as file:
            torch.save({"key": self._key, "seconds": seconds, "state": state}, file)

    def _first_pause(self, size: int) -> float:
        """The interval before the first write, by an estimate of how long it takes."""
        return min(self._every, (_SECONDS_PER_FILE + size / _BYTES_PER_SECOND) / _MAX_TIME_FRACTION)


def _bytes_of(state: Any) -> int:
    """Size of the tensors in a nested state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    if isinstance(state, Mapping):
        return sum(map(_bytes_of, state.values()))
    return sum(map(_bytes_of, state)) if isinstance(state, list | tuple) else 0
