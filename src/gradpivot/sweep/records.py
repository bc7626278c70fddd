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

from gradpivot.atomic import write_text

__all__ = ["Records", "Stamp"]


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
            if sealed["sha256"] == _checksum(sealed["record"]) and sealed["key"] == key:
                record: dict[str, Any] = sealed["record"]
                return record
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        self.damaged.append(path)
        return None

    def put(self, key: str, record: dict[str, Any]) -> Stamp:
        """Keep a finished run."""
        sealed = {"key": key, "sha256": _checksum(record), "record": record}
        path = self.path(key)
        write_text(path, json.dumps(sealed) + "\n")
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


def _stamp(stat: os.stat_result) -> Stamp:
    return Stamp(stat.st_size, stat.st_mtime_ns)


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
