"""The index of a store: an SQLite file shared by several processes and created anew if damaged."""

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

_LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process's write."""
_MIN_FREE_BYTES = 1 << 17
"""With less free space than this, SQLite cannot grow its files."""


class Index:
    """An SQLite file; kept in memory on a read-only disk.

    Args:
        path: The file; created if missing.
        tables: SQL that creates missing tables.
    """

    def __init__(self, path: Path, tables: str) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection = _connect(path, tables)

    def read(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query."""
        with self._lock:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise _as_disk_error(error, self._path) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """An atomic transaction with one writer at a time across processes and threads."""
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


def _connect(path: Path, tables: str) -> sqlite3.Connection:
    try:
        return _open(path, tables)
    except sqlite3.OperationalError as error:
        if os.access(path.parent, os.W_OK):
            raise _as_disk_error(error, path) from error
        return _open(Path(":memory:"), tables)
    except sqlite3.DatabaseError:
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        return _open(path, tables)


def _open(path: Path, tables: str) -> sqlite3.Connection:
    # Autocommit: we begin transactions ourselves. The timeout waits for other processes' writes.
    index = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        _switch_to_wal(index)
        # A power cut may lose the last claims and failures, which is as if they had expired.
        index.execute("PRAGMA synchronous = NORMAL")
        index.executescript(tables)
        # Detect damage now, not on a later read.
        if (status := index.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(status)
    except BaseException:
        index.close()
        raise
    return index


def _switch_to_wal(index: sqlite3.Connection) -> None:
    """Switch to WAL, which allows reads during a write. Retries, as SQLite does not wait if two processes switch."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            index.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _as_disk_error(error: sqlite3.DatabaseError, path: Path) -> Exception:
    """Convert SQLite's errors: a full disk or I/O error to OSError, others to GradPivotError."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        # For some of its files SQLite reports a full disk as an I/O error.
        full = code == sqlite3.SQLITE_FULL or shutil.disk_usage(path.parent).free < _MIN_FREE_BYTES
        number = errno.ENOSPC if full else errno.EIO
        return OSError(number, os.strerror(number), str(path))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return GradPivotError(f"timed out: another process holds the index {path}; run the command again")
    return GradPivotError(f"cannot use the index {path} ({error}); delete it, the runs are safe")
