"""Who is working on what: leases with a heartbeat, so that sweeps share the work and a dead one's is taken again."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from gradpivot.sweep.store.index import Index

__all__ = ["LEASE_SECONDS", "TABLE", "Leases"]

LEASE_SECONDS = 60.0
"""How long a claim lasts without a heartbeat. A dead process on the same machine is noticed at once."""

TABLE = """
CREATE TABLE IF NOT EXISTS leases
    (key TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, began INTEGER, until REAL);
"""


class Leases:
    """This process's claims in an index, and those of others.

    Args:
        index: Where they are kept; it has :data:`TABLE`.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._owner = f"{_host()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def claim(self, keys: Iterable[str], most: int) -> list[str]:
        """Up to ``most`` of ``keys`` that nobody works on, now ours until we finish, release or die."""
        taken: list[str] = []
        with self._index.transaction() as index:
            held = {key: rest for key, *rest in index.execute("SELECT * FROM leases")}
            for key in keys:
                if len(taken) == most:
                    break
                if key not in held or _is_over(*held[key]):
                    taken.append(key)
            until = time.time() + LEASE_SECONDS
            me = (self._owner, _host(), os.getpid(), _began(os.getpid()) or 0, until)
            index.executemany("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", [(key, *me) for key in taken])
        return taken

    def heartbeat(self) -> None:
        """Say that we are alive: our claims last another lease."""
        with self._index.transaction() as index:
            index.execute("UPDATE leases SET until = ? WHERE owner = ?", (time.time() + LEASE_SECONDS, self._owner))

    def elsewhere(self) -> int:
        """How many runs other live processes are working on."""
        rows = self._index.read("SELECT * FROM leases WHERE owner != ?", self._owner)
        return sum(not _is_over(*rest) for _, *rest in rows)

    def release(self, key: str | None = None) -> None:
        """Give up one claim, or all of ours."""
        with self._index.transaction() as index:
            if key is None:
                index.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))
            else:
                index.execute("DELETE FROM leases WHERE owner = ? AND key = ?", (self._owner, key))


def _is_over(owner: str, host: str, pid: int, began: int, until: float) -> bool:
    """Whether a claim has lapsed.

    A process on this machine holds it as long as it lives, asleep or not; where that cannot be seen, on another machine
    or without /proc, the heartbeat decides.
    """
    if began and host == _host():
        return _began(pid) != began
    return time.time() > until


def _host() -> str:
    """This machine, and on it the set of processes that we can see: containers may share a name, and not that."""
    try:
        seen = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        seen = ""
    return f"{socket.gethostname()} {seen}".strip()


def _began(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None if it is gone, 0 where the system does not tell.

    With the number it names a process for good: numbers come again, and one that was killed keeps its number until its
    parent has looked (state Z).
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else 0
    except OSError:
        return None
    return None if state == "Z" else int(rest[18])
