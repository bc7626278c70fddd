"""The runs of a search on disk: a killed search continues the run in flight and does no finished one again."""

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
    """Where a search keeps its runs.

    For ``checkpoint.pt`` that is ``checkpoint.1.pt`` while run 1 is in flight, ``checkpoint.1.done.pt`` once it is
    finished, and so on.

    Args:
        checkpoint: The file that the caller named; None keeps nothing.
        replicas: The processes that search together; the first one writes.
    """

    def __init__(self, checkpoint: Path | None, replicas: Replicas) -> None:
        self._checkpoint, self._replicas = checkpoint, replicas

    def in_flight(self, number: int) -> Path | None:
        """Where run ``number`` keeps its resumable state."""
        return self._named(f"{number}") if self._checkpoint else None

    def put(self, number: int, key: str, outcome: Outcome) -> None:
        """Keep a finished run."""
        if self._checkpoint is None or not self._replicas.is_first:
            return
        saved = {
            "key": key,
            "weights": outcome.model.state_dict(),
            "history": outcome.history,
            "seconds": outcome.seconds,
            "diverged": outcome.diverged,
        }
        # Through a file object, because torch's own writer reports a full disk as "iostream error".
        with replacing(self._named(f"{number}.done")) as temporary, temporary.open("wb") as file:
            torch.save(saved, file)
        self._named(f"{number}").unlink(missing_ok=True)

    def take(self, number: int, key: str, like: nn.Module) -> Outcome | None:
        """The finished run, if there is one; its weights in a copy of ``like``.

        Raises:
            GradPivotError: if the file is damaged or of another run.
        """
        if self._checkpoint is None:
            return None
        path = self._named(f"{number}.done")
        saved = self._replicas.from_first(lambda: _read(path, key))
        if saved is None:
            return None
        model = copy.deepcopy(like)
        model.load_state_dict(saved["weights"])
        return Outcome(model=model, history=saved["history"], seconds=saved["seconds"], diverged=saved["diverged"])

    def clear(self, runs: int) -> None:
        """Delete what is kept of so many runs."""
        if self._checkpoint is None or not self._replicas.is_first:
            return
        for number in range(1, runs + 1):
            for name in (f"{number}", f"{number}.done"):
                self._named(name).unlink(missing_ok=True)

    def _named(self, name: str) -> Path:
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
            f"the finished run in {path} is damaged ({type(error).__name__}); delete it to do that run again"
        ) from error
    if found != key:
        raise GradPivotError(
            f"{path} belongs to another run (other data, method, targets or seed); delete it or name another file"
        )
    return saved
