"""Finished runs on disk: one checksummed file each, written atomically, so that nothing computed is lost.

A damaged record is noticed, named and done again; it is never read.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from gradpivot.atomic import write_text

__all__ = ["Records"]


class Records:
    """A folder of finished runs.

    Args:
        folder: Where the files are; made when the first record is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.damaged: list[Path] = []
        """Files that were found but could not be trusted."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The record under ``key``, or None if there is none that can be trusted."""
        path = self._path(key)
        try:
            sealed = json.loads(path.read_text(encoding="utf-8"))
            if sealed["sha256"] == _checksum(sealed["record"]) and sealed["key"] == key:
                record: dict[str, Any] = sealed["record"]
                return record
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        self.damaged.append(path)
        return None

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Keep a finished run."""
        sealed = {"key": key, "sha256": _checksum(record), "record": record}
        write_text(self._path(key), json.dumps(sealed) + "\n")

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
