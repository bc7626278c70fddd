"""Where downloaded data and weights are kept: one folder, one sub-folder per entry."""

from __future__ import annotations

import os
from pathlib import Path

from gradpivot.errors import GradPivotError

__all__ = ["cached_file", "data_folder"]


def data_folder() -> Path:
    """``GRADPIVOT_DATA``, or a folder in the user's cache directory."""
    chosen = os.environ.get("GRADPIVOT_DATA")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradpivot"


def cached_file(name: str, file: str) -> Path:
    """The path of one file of an entry.

    Raises:
        GradPivotError: if it is not there, with the command that gets it.
    """
    path = data_folder() / name / file
    if not path.is_file():
        raise GradPivotError(f"{name} is not on this machine; run 'gradpivot data get {name}'")
    return path
