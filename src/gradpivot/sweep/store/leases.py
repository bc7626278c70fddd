"""Leases with a heartbeat, so that sweeps can share a store and take over the work of dead ones."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable

from gradpivot.runtime import host_name, process_start
from gradpivot.sweep.store.index import Index

__all__ = ["LEASE_SECONDS", "TABLE", "Leases"]

LEASE_SECONDS = 60.0
"""Lifetime of a claim without a heartbeat. Dead processes on the same machine are noticed at once."""

TABLE = """
CREATE TABLE IF NOT EXISTS leases
    (key TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, began INTEGER, until REAL);
"""


class Leases:
    """Claims of this and other processes, kept in an index.

    Args:
        index: An index with :data:`TABLE`.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._owner = f"{host_name()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def claim(self, keys: Iterable[str], most: int) -> list[str]:
        """Claim up to ``most`` free ``keys`` until we finish them, release them or die."""
        taken: list[str] = []
        with self._index.transaction() as index:
            held = {key: rest for key, *rest in index.execute("SELECT * FROM leases")}
            for key in keys:
                if len(taken) == most:
                    break
                if key not in held or _expired(*held[key]):
                    taken.append(key)
            until = time.time() + LEASE_SECONDS
            me = (self._owner, host_name(), os.getpid(), process_start(os.getpid()) or 0, until)
            index.executemany("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", [(key, *me) for key in taken])
        return taken

    def heartbeat(self) -> None:
        """Renew our claims for another lease."""
        with self._index.transaction() as index:
            index.execute("UPDATE leases SET until = ? WHERE owner = ?", (time.time() + LEASE_SECONDS, self._owner))

    def elsewhere(self) -> int:
        """Number of runs claimed by other live processes."""
        rows = self._index.read("SELECT * FROM leases WHERE owner != ?", self._owner)
        return sum(not _expired(*rest) for _, *rest in rows)

    def release(self, key: str | None = None) -> None:
        """Give up one claim, or all of ours."""
        with self._index.transaction() as index:
            if key is None:
                index.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))
            else:
                index.execute("DELETE FROM leases WHERE owner = ? AND key = ?", (self._owner, key))


def _expired(owner: str, host: str, pid: int, began: int, until: float) -> bool:
    """Whether a claim has expired.

    A process on this machine holds its claim as long as it lives. On another machine or without /proc, the heartbeat
    decides.
    """
    if not isinstance(pid, int) or not isinstance(until, float):
        return True
    if began and host == host_name():
        return process_start(pid) != began
    return time.time() > until
