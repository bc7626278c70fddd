"""Hold a folder for one process at a time."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gradpivot.errors import GradPivotError
from gradpivot.runtime.atomic import write_text
from gradpivot.runtime.processes import host_name, process_start

__all__ = ["exclusive"]

_LOCK, _HOLDER = ".lock", ".holder.json"
_CHILDREN_SECONDS = 10.0
"""Seconds to wait for the children of a killed process: its data loaders inherited the lock and end by themselves."""
_MAX_ATTEMPTS = 100


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder until the end of the block; the system releases the lock of a killed process.

    Args:
        folder: Created if it does not exist, and then removed if it is empty at the end.

    Raises:
        GradPivotError: If another process holds it.
    """
    lock, file = FileLock(folder / _LOCK), folder / _HOLDER
    for attempt in range(_MAX_ATTEMPTS):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _acquire(lock, folder, file)
            break
        except FileNotFoundError:
            # Its holder has just ended without a result, and removed the folder.
            if attempt == _MAX_ATTEMPTS - 1:
                raise
    try:
        me = {"pid": os.getpid(), "began": process_start(os.getpid()), "machine": host_name()}
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        write_text(file, json.dumps({**me, "host": socket.gethostname(), "since": since}) + "\n")
        yield
    finally:
        file.unlink(missing_ok=True)
        if missing:
            _remove_empty(missing)
        lock.release()


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that we created, the innermost first, if nothing was written there."""
    if [path.name for path in folders[0].iterdir()] == [_LOCK]:
        (folders[0] / _LOCK).unlink()
        # Another process may have written to a folder above.
        with suppress(OSError):
            for folder in folders:
                folder.rmdir()


def _acquire(lock: FileLock, folder: Path, file: Path) -> None:
    """Take the lock; wait for it if its holder was killed, and raise if the holder runs, or may run."""
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return
    holder = _read(file)
    gone = holder.get("machine") == host_name() and process_start(holder["pid"]) not in (0, holder["began"])
    try:
        lock.acquire(timeout=_CHILDREN_SECONDS if gone or not holder else 0)
    except Timeout:
        holder = holder or _read(file)
        who = "process {pid} on {host} since {since}".format_map(holder) if holder else "another process"
        raise GradPivotError(
            f"{folder} is in use by {who}; wait for it to end, or choose another folder with --out"
        ) from None


def _read(file: Path) -> dict[str, Any]:
    """The holder; empty if it has not written its name yet or has just ended."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"pid", "began", "machine", "host", "since"} <= found.keys() else {}
