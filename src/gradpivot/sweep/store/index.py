"""The index of a store: an SQLite file that several processes share, thrown away and made anew when it is damaged."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError

__all__ = ["Index"]

_INDEX_PATIENCE = 60.0
"""Seconds to wait for another process's write."""
_PAGE_ROOM = 1 << 17
"""With less room than this, SQLite cannot extend its files."""


class Index:
    """An SQLite file with these tables.

    One that cannot be written, on a read-only disk, is kept in memory.

    Args:
        path: The file; made if it is not there.
        tables: SQL that makes what it must hold, if it is not there.
    """

    def __init__(self, path: Path, tables: str) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection = _connected(path, tables)

    def read(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query."""
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise _as_disk_error(error, self._path) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one writer at a time, over processes and threads."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    raise _as_disk_error(error, self._path) from error
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _connected(path: Path, tables: str) -> sqlite3.Connection:
    try:
        return _opened(path, tables)
    except sqlite3.OperationalError as error:
        if os.access(path.parent, os.W_OK):
            raise _as_disk_error(error, path) from error
        return _opened(Path(":memory:"), tables)
    except sqlite3.DatabaseError:
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        return _opened(path, tables)


def _opened(path: Path, tables: str) -> sqlite3.Connection:
    # Autocommit mode: transactions are ours. Other processes' writes are waited for.
    index = sqlite3.connect(path, timeout=_INDEX_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _switch_to_wal(index)
        # The runs' files are the truth: after a power cut the index may lose its last lines, and finds them again.
        index.execute("PRAGMA synchronous = NORMAL")
        index.executescript(tables)
        # Damage further back would show only when somebody reads it; 100,000 runs take a third of a second.
        if (told := index.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(told)
    except BaseException:
        index.close()
        raise
    return index


def _switch_to_wal(index: sqlite3.Connection) -> None:
    """Several processes may read while one writes. SQLite does not wait by itself when two switch at once."""
    deadline = time.monotonic() + _INDEX_PATIENCE
    while True:
        try:
            index.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _as_disk_error(error: sqlite3.DatabaseError, path: Path) -> Exception:
    """SQLite's words for a full disk as the OSError that callers know."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        # SQLite calls a full disk an I/O error in some of its files.
        full = code == sqlite3.SQLITE_FULL or shutil.disk_usage(path.parent).free < _PAGE_ROOM
        number = errno.ENOSPC if full else errno.EIO
        return OSError(number, os.strerror(number), str(path))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return GradPivotError(f"another process holds the index {path} for too long; start the command again")
    return GradPivotError(f"the index {path} cannot be used ({error}); delete it, it is rebuilt from the runs")
