"""Atomic file writes: temporary file, fsync, rename."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds.

    On any error, including a full disk or an interrupt, the old file is unchanged. The umask decides who may read it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are 0600, and the umask cannot be read without changing it for all threads.
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
