"""Finished runs on disk: one checksummed file each, written atomically.

Damaged records are reported and their runs repeated. Files are spread over 256 folders by the first two digits of
their key, because many file systems list folders with 100,000 files slowly.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gradpivot.runtime import write_text

__all__ = ["Records", "Stamp", "seal", "unsealed"]


class Stamp(NamedTuple):
    """Size and modification time of a file, which show whether the index is out of date."""

    size: int
    modified: int


class Records:
    """A folder of finished runs.

    Args:
        folder: Folder of the files; created with the first record.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.damaged: list[Path] = []
        """Damaged files found so far."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The record under ``key``, or None if it is missing or damaged."""
        path = self.path(key)
        try:
            sealed = json.loads(path.read_text(encoding="utf-8"))
            if sealed["key"] == key:
                return unsealed(sealed)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        self.damaged.append(path)
        return None

    def put(self, key: str, record: dict[str, Any]) -> Stamp:
        """Write the record of a finished run."""
        path = self.path(key)
        write_text(path, json.dumps(seal(key, record)) + "\n")
        return _stamp(path.stat())

    def path(self, key: str) -> Path:
        """Path of the record of ``key``, whether it exists or not."""
        return self._folder / key[:2] / f"{key}.json"

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Every key on disk with its file's size and time, without reading the files."""
        try:
            shards = [entry.path for entry in os.scandir(self._folder) if entry.is_dir()]
        except FileNotFoundError:
            return
        for shard in sorted(shards):
            for entry in os.scandir(shard):
                # A leading dot marks a partial file left by a kill.
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    yield entry.name.removesuffix(".json"), _stamp(entry.stat())


def seal(key: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record with its key and checksum."""
    return {"key": key, "sha256": _checksum(record), "record": record}


def unsealed(sealed: dict[str, Any]) -> dict[str, Any]:
    """The sealed record.

    Raises:
        ValueError: If its checksum does not match.
    """
    record: dict[str, Any] = sealed["record"]
    if sealed["sha256"] != _checksum(record):
        raise ValueError("wrong checksum: the record was changed or damaged")
    return record


def _stamp(stat: os.stat_result) -> Stamp:
    return Stamp(stat.st_size, stat.st_mtime_ns)


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
