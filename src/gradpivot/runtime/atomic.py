"""Atomic file writes: temporary file, fsync, rename. Temporary files of killed processes are removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradpivot.runtime.processes import host_name, process_start

__all__ = ["create_text", "remove_stale", "replacing", "write_text"]

_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{8})-(\d+)-(\d+)\.[a-z0-9_]{8}\.tmp")
_MAX_AGE = 86_400.0
"""Seconds after which a temporary file is stale if its process runs elsewhere and cannot be checked."""
_swept: set[Path] = set()


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds.

    On any error, including a full disk or an interrupt, the old file is unchanged. The umask decides who may read the
    new one. The first write to a folder removes the temporary files that killed processes left there.
    """
    with _draft(Path(path)) as draft:
        yield draft
        _finish(draft)
        draft.replace(path)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def create_text(path: Path, text: str) -> None:
    """Create a file atomically; if several processes try, the first one wins."""
    with _draft(path) as draft:
        draft.write_text(text, encoding="utf-8")
        _finish(draft)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        except OSError:
            # Without hard links, the last process wins.
            draft.replace(path)


def remove_stale(folder: Path) -> None:
    """Remove the temporary files in ``folder`` whose process is gone."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if (name := _TEMPORARY.fullmatch(entry.name)) and _is_stale(Path(entry.path), *name.groups()):
                # It may be another user's, or another process may be faster.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    Path(entry.path).unlink()


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield a new temporary file beside ``target``; removed at the end of the block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if (folder := target.parent.absolute()) not in _swept:
        _swept.add(folder)
        remove_stale(folder)
    # Not tempfile: its files are 0600, and the umask cannot be read without changing it for all threads.
    draft = target.with_name(f".{target.name}.{_owner()}.{uuid.uuid4().hex[:8]}.tmp")
    draft.touch(exist_ok=False)
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _finish(draft: Path) -> None:
    with draft.open("rb+") as file:
        os.fsync(file.fileno())


def _is_stale(path: Path, host: str, pid: str, began: str) -> bool:
    if int(began) and host == _host():
        return process_start(int(pid)) != int(began)
    try:
        return time.time() - path.stat().st_mtime > _MAX_AGE
    except FileNotFoundError:
        return False


def _owner() -> str:
    """This process, in the names of its temporary files."""
    pid = os.getpid()
    return f"{_host()}-{pid}-{process_start(pid) or 0}"


def _host() -> str:
    return hashlib.sha256(host_name().encode()).hexdigest()[:8]
