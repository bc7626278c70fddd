"""The resumable state of a run in flight: one file, replaced atomically, loaded without code execution."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gradpivot.errors import GradPivotError
from gradpivot.runtime import replacing

__all__ = ["Checkpoint"]

_MOST_TIME = 0.02
"""The share of a run's time that writing its state may take."""


class Checkpoint:
    """Where a run's state is kept while it runs.

    Args:
        path: The file.
        key: What the run is (split, method, seed); a file of another run is refused, not resumed.
        every_seconds: How often it is written, at most; 0 means after every step. Where writing is slow (130 MB for a
            ResNet-18 with its momentum), it is written less often: it takes a fiftieth of the time at most.

    Raises:
        GradPivotError: for a time that is not ≥ 0.
    """

    def __init__(self, path: Path, key: str, every_seconds: float) -> None:
        if not every_seconds >= 0:
            raise GradPivotError(
                f"a checkpoint every {every_seconds:g} s makes no sense; give seconds ≥ 0, where 0 is after every step"
            )
        self._path, self._key, self._every = Path(path), key, every_seconds
        self._started = self._written = time.perf_counter()
        self._pause = every_seconds
        self.seconds_before = 0.0
        """Wall-clock that earlier, interrupted parts of this run took."""

    def load(self) -> dict[str, Any] | None:
        """The state to continue from, or None if there is none.

        Raises:
            GradPivotError: if the file is damaged or belongs to another run.
        """
        if not self._path.exists():
            return None
        if self._path.is_dir():
            raise GradPivotError(f"the checkpoint {self._path} is a folder; name a file in it")
        try:
            saved = torch.load(self._path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise GradPivotError(
                f"the checkpoint {self._path} is damaged ({type(error).__name__}), or not the state of a run; delete "
                f"it to start this run over, or name another file"
            ) from error
        if not isinstance(saved, dict) or not {"key", "seconds", "state"} <= saved.keys():
            raise GradPivotError(
                f"the checkpoint {self._path} is not the state of a run; name another file, and load trained weights "
                f"into the model beforehand"
            )
        key, self.seconds_before, state = saved["key"], saved["seconds"], saved["state"]
        if key != self._key:
            raise GradPivotError(
                f"the checkpoint {self._path} belongs to another run (other data, method or seed); "
                f"delete it or name another file"
            )
        found: dict[str, Any] = state
        return found

    def save_if_due(self, state: Callable[[], dict[str, Any]]) -> None:
        """Write the state if the last time was long enough ago."""
        now = time.perf_counter()
        if now - self._written < self._pause:
            return
        seconds = self.seconds_before + now - self._started
        # Through a file object, because torch's own writer reports a full disk as "iostream error".
        with replacing(self._path) as temporary, temporary.open("wb") as file:
            torch.save({"key": self._key, "seconds": seconds, "state": state()}, file)
        self._written = time.perf_counter()
        if self._every:
            self._pause = max(self._every, (self._written - now) / _MOST_TIME)
