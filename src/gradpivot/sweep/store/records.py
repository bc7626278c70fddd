"""Finished runs on disk: one checksummed file each, written atomically, so that nothing computed is lost.

A damaged record is noticed, named and done again; it is never read. Files are spread over 256 folders by the first two
digits of their key, because folders of 100,000 files are slow to list on many file systems.
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
    """What changes when a file does: enough to see which records an index has to read again."""

    size: int
    modified: int


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
        """Keep a finished run."""
        path = self.path(key)
        write_text(path, json.dumps(seal(key, record)) + "\n")
        return _stamp(path.stat())

    def path(self, key: str) -> Path:
        """Where the record of ``key`` is, or would be."""
        return self._folder / key[:2] / f"{key}.json"

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Every key on disk with its file's size and time; nothing is read."""
        try:
            shards = [entry.path for entry in os.scandir(self._folder) if entry.is_dir()]
        except FileNotFoundError:
            return
        for shard in sorted(shards):
            for entry in os.scandir(shard):
                # A name that starts with a dot is a file that a kill left half written.
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    yield entry.name.removesuffix(".json"), _stamp(entry.stat())


def seal(key: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record with its key and the checksum of its content."""
    return {"key": key, "sha256": _checksum(record), "record": record}


def unsealed(sealed: dict[str, Any]) -> dict[str, Any]:
    """The record inside.

    Raises:
        ValueError: if it is not what was sealed.
    """
    record: dict[str, Any] = sealed["record"]
    if sealed["sha256"] != _checksum(record):
        raise ValueError("its checksum is wrong: it was changed or damaged")
    return record


def _stamp(stat: os.stat_result) -> Stamp:
    return Stamp(stat.st_size, stat.st_mtime_ns)


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
