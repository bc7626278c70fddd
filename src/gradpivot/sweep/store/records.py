"""Finished runs on disk: one checksummed file each, written atomically and verified whenever it is read.

Damaged records are reported and their runs repeated. Files are spread over 256 folders by the first two digits of
their key, because many file systems list folders with 100,000 files slowly.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradpivot.runtime import describe_error, parse_json, write_text

__all__ = ["Records", "seal", "unsealed"]


class Records:
    """A folder of finished runs.

    Args:
        folder: Folder of the files; created with the first record.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.damaged: dict[Path, str] = {}
        """Damaged files found so far, and what is wrong with each."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The record under ``key``, or None if it is missing or damaged."""
        path = self.path(key)
        try:
            return _read(path.read_text(encoding="utf-8"), key)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            self.damaged[path] = describe_error(error)
            return None

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Write the record of a finished run; a damaged one, or one of a newer version, is kept as ``*.damaged``."""
        path = self.path(key)
        if path in self.damaged:
            with contextlib.suppress(FileNotFoundError):
                path.replace(path.with_suffix(".damaged"))
        # Sorted, because the checksum is that of the sorted text.
        write_text(path, json.dumps(seal(key, record), sort_keys=True) + "\n")

    def path(self, key: str) -> Path:
        """Path of the record of ``key``, whether it exists or not."""
        return self._folder / key[:2] / f"{key}.json"

    def keys(self) -> Iterator[str]:
        """Every key on disk, without reading the files."""
        try:
            shards = [entry.path for entry in os.scandir(self._folder) if entry.is_dir()]
        except FileNotFoundError:
            return
        for shard in sorted(shards):
            for entry in os.scandir(shard):
                # A leading dot marks a partial file left by a kill.
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    key = entry.name.removesuffix(".json")
                    if self.path(key) == Path(entry.path):
                        yield key
                    else:
                        self.damaged[Path(entry.path)] = "in the wrong folder"


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


def _read(text: str, key: str) -> dict[str, Any]:
    """The record in a file's text."""
    # In a file as put() writes it, the checksum is that of a part of the text: no need to write it all out again.
    start, end = f'{{"key": {json.dumps(key)}, "record": ', len(text) - len(_END.format("0" * 64))
    written = text[len(start) : end]
    if text.startswith(start) and text[end:] == _END.format(hashlib.sha256(written.encode()).hexdigest()):
        record: dict[str, Any] = parse_json(written)
        return record
    sealed = parse_json(text)
    if sealed["key"] != key:
        raise ValueError("wrong key: the file was renamed")
    return unsealed(sealed)


_END = ', "sha256": "{}"}}\n'


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
