"""Saves the runs of a search, so that a killed search resumes its current run and skips finished ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gradpivot.errors import GradPivotError
from gradpivot.loop import Outcome
from gradpivot.runtime import replacing

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.runtime import Replicas

__all__ = ["Shelf"]


class Shelf:
    """The saved runs of a search.

    For ``checkpoint.pt``, run 1 is saved as ``checkpoint.1.pt`` while in progress and as ``checkpoint.1.done.pt`` once
    finished.

    Args:
        checkpoint: Checkpoint file from the user; None saves nothing.
        replicas: The data-parallel processes. Only the first one writes.
    """

    def __init__(self, checkpoint: Path | None, replicas: Replicas) -> None:
        self._checkpoint, self._replicas = checkpoint, replicas

    def in_flight(self, number: int) -> Path | None:
        """Checkpoint file of run ``number``, or None."""
        return self._path(f"{number}") if self._checkpoint else None

    def put(self, number: int, key: str, outcome: Outcome) -> None:
        """Save a finished run and delete its checkpoint."""
        if self._checkpoint is None or not self._replicas.is_first:
            return
        saved = {
            "key": key,
            "weights": outcome.model.state_dict(),
            "history": outcome.history,
            "seconds": outcome.seconds,
            "diverged": outcome.diverged,
        }
        # Use a file object, because torch's own writer reports a full disk as "iostream error".
        with replacing(self._path(f"{number}.done")) as temporary, temporary.open("wb") as file:
            torch.save(saved, file)
        self._path(f"{number}").unlink(missing_ok=True)

    def take(self, number: int, key: str, like: nn.Module) -> Outcome | None:
        """Load a finished run into a copy of ``like``; None if it is not saved.

        Raises:
            GradPivotError: If the file is damaged or belongs to another run.
        """
        if self._checkpoint is None:
            return None
        path = self._path(f"{number}.done")
        saved = self._replicas.from_first(lambda: _read(path, key))
        if saved is None:
            return None
        model = copy.deepcopy(like)
        model.load_state_dict(saved["weights"])
        return Outcome(model=model, history=saved["history"], seconds=saved["seconds"], diverged=saved["diverged"])

    def clear(self, runs: int) -> None:
        """Delete the files of the first ``runs`` runs."""
        if self._checkpoint is None or not self._replicas.is_first:
            return
        for number in range(1, runs + 1):
            for name in (f"{number}", f"{number}.done"):
                self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        assert self._checkpoint is not None
        return self._checkpoint.with_name(f"{self._checkpoint.stem}.{name}{self._checkpoint.suffix}")


def _read(path: Path, key: str) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        found = saved["key"]
    except Exception as error:
        raise GradPivotError(
            f"the finished run in {path} is damaged ({type(error).__name__}); delete it to repeat the run"
        ) from error
    if found != key:
        raise GradPivotError(
            f"{path} belongs to another run (other data, method, targets or seed); delete it or choose another file"
        )
    return saved
