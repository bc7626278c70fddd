"""The store of a sweep: finished runs that survive anything, and who is working on what. No torch.

The truth is one checksummed file per finished run (:mod:`gradpivot.sweep.records`). Beside them lies an SQLite index,
which only makes reading fast and can be deleted at any time: it is rebuilt from the files. It also holds the *claims*:
leases with a heartbeat, so that two sweeps on one store share the work, and a dead one's runs are taken again.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gradpivot.atomic import replacing, write_text
from gradpivot.errors import GradPivotError
from gradpivot.frontier.record import Record
from gradpivot.sweep.records import Records, Stamp

__all__ = ["Failure", "Store"]

SCHEMA = "gradpivot.store/1"
LEASE_SECONDS = 60.0
"""How long a claim lasts without a heartbeat. A dead process on the same machine is noticed at once."""

_TABLES = """
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, size INTEGER, modified INTEGER, row TEXT);
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, until REAL);
CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, what TEXT, reason TEXT, seen REAL);
"""

Failure = tuple[str, str, str]
"""Key, what was run, why it failed."""


class Store:
    """A folder of finished runs.

    Args:
        folder: Where it is.
        create: Whether to make it if it is not there.

    Raises:
        GradPivotError: if it is not there, is something else, or was made by a newer version.
    """

    def __init__(self, folder: str | Path, *, create: bool = False) -> None:
        self.folder = Path(folder)
        self._records = Records(self.folder / "runs")
        self.id = self._open(create)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lock = threading.RLock()
        self._index = self._connect()

    @property
    def damaged(self) -> list[Path]:
        """Record files that were found but could not be trusted."""
        return self._records.damaged

    def original_path(self, key: str) -> Path:
        """Where an original model's weights are kept."""
        return self.folder / "originals" / f"{key}.safetensors"

    def put_original(self, key: str, weights: bytes) -> None:
        """Keep an original model's weights and their checksum; a claim on it ends."""
        path = self.original_path(key)
        with replacing(path) as temporary:
            temporary.write_bytes(weights)
        write_text(path.with_suffix(".sha256"), hashlib.sha256(weights).hexdigest() + "\n")
        self.release(key)

    def has_original(self, key: str) -> bool:
        """Whether an original's weights are there and sound; a damaged file is named in :attr:`damaged`."""
        path = self.original_path(key)
        try:
            expected = path.with_suffix(".sha256").read_text(encoding="utf-8").strip()
            if hashlib.sha256(path.read_bytes()).hexdigest() == expected:
                return True
        except FileNotFoundError:
            return False
        self.damaged.append(path)
        return False

    def checkpoint_path(self, key: str) -> Path:
        """Where a run in flight keeps its resumable state."""
        return self.folder / "checkpoints" / f"{key}.pt"

    # Records

    def put(self, record: Record) -> None:
        """Keep a finished run: first its file, then its line in the index; a claim on it ends."""
        stamp = self._records.put(record.key, record.to_dict())
        with self._transaction() as index:
            _remember(index, record, stamp)
            index.execute("DELETE FROM claims WHERE key = ?", (record.key,))
            index.execute("DELETE FROM failures WHERE key = ?", (record.key,))

    def has(self, key: str) -> bool:
        """Whether a finished run can be read; its checksum is checked."""
        return self._records.get(key) is not None

    def get(self, key: str) -> Record | None:
        """A finished run with its telemetry, or None if there is none that can be trusted."""
        content = self._records.get(key)
        return None if content is None else Record.from_dict(content)

    def done(self, keys: Sequence[str]) -> dict[str, bool]:
        """Which of these runs are finished, and whether they diverged. Every file is read and checked."""
        found = {}
        for key in keys:
            content = self._records.get(key)
            if content is not None:
                found[key] = content["point"]["diverged"] is not None
        return found

    def records(self) -> list[Record]:
        """All finished runs without telemetry, in a fixed order.

        Only files that are new or changed since the last time are read, so 100,000 runs take seconds.
        """
        self._refresh()
        with self._lock:
            rows = self._index.execute("SELECT row FROM records ORDER BY key").fetchall()
        with _no_collection():
            # As one text: 100,000 small ones take twice as long.
            return [
                Record.from_dict(values) for values in json.loads(f"[{','.join(row for (row,) in rows)}]")
            ]

    def check(self) -> tuple[int, list[str]]:
        """Read every run and original: how many files are sound, and the names of those that are not."""
        keys = [key for key, _ in self._records.stamps()]
        weights = sorted((self.folder / "originals").glob("*.safetensors"))
        sound = sum(self.has(key) for key in keys) + sum(self.has_original(path.stem) for path in weights)
        return sound, [path.name for path in self.damaged]

    def _refresh(self) -> None:
        """Make the index agree with the files."""
        with self._lock:
            known = {
                key: Stamp(size, modified)
                for key, size, modified in self._index.execute("SELECT key, size, modified FROM records")
            }
        on_disk = dict(self._records.stamps())
        changed = [key for key, stamp in on_disk.items() if known.get(key) != stamp]
        gone = [key for key in known if key not in on_disk]
        if not changed and not gone:
            return
        with self._transaction() as index:
            index.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in (*gone, *changed)])
            for key in changed:
                if (content := self._records.get(key)) is not None:
                    _remember(index, Record.from_dict(content), on_disk[key])

    # Claims

    def claim(self, keys: Iterable[str], most: int) -> list[str]:
        """Up to ``most`` of ``keys`` that nobody works on, now ours until we finish, release or die."""
        taken: list[str] = []
        with self._transaction() as index:
            held = {key: rest for key, *rest in index.execute("SELECT * FROM claims")}
            for key in keys:
                if len(taken) == most:
                    break
                if key not in held or _is_over(*held[key]):
                    taken.append(key)
            until = time.time() + LEASE_SECONDS
            index.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)",
                [(key, self._owner, socket.gethostname(), os.getpid(), until) for key in taken],
            )
        return taken

    def heartbeat(self) -> None:
        """Say that we are alive: our claims last another lease."""
        with self._transaction() as index:
            index.execute(
                "UPDATE claims SET until = ? WHERE owner = ?", (time.time() + LEASE_SECONDS, self._owner)
            )

    def claimed_elsewhere(self) -> int:
        """How many runs other live sweeps on this store are working on."""
        with self._lock:
            rows = self._index.execute("SELECT * FROM claims WHERE owner != ?", (self._owner,)).fetchall()
        return sum(not _is_over(*rest) for _, *rest in rows)

    def release(self, key: str | None = None) -> None:
        """Give up one claim, or all of ours."""
        with self._transaction() as index:
            if key is None:
                index.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
            else:
                index.execute("DELETE FROM claims WHERE owner = ? AND key = ?", (self._owner, key))

    # Failures

    def fail(self, key: str, what: str, reason: str) -> None:
        """Note that a run could not be done; the next sweep tries it again."""
        with self._transaction() as index:
            index.execute(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", (key, what, reason, time.time())
            )
            index.execute("DELETE FROM claims WHERE key = ?", (key,))

    def failures(self) -> list[Failure]:
        """The runs that could not be done, the latest last."""
        with self._lock:
            return list(self._index.execute("SELECT key, what, reason FROM failures ORDER BY seen"))

    # Exchange

    def export(self, path: str | Path) -> int:
        """Write all finished runs as JSON lines, to be committed or merged; give their number."""
        records = self.records()
        lines = [json.dumps(record.to_dict(), sort_keys=True, ensure_ascii=False) for record in records]
        write_text(path, "".join(f"{line}\n" for line in lines))
        return len(lines)

    def take_in(self, path: str | Path) -> tuple[int, int]:
        """Read exported runs; give how many were new and how many were here already (and stayed).

        Raises:
            GradPivotError: naming the line that cannot be read; nothing of the file is taken then.
        """
        records = list(_exported(Path(path)))
        here = {key for key, _ in self._records.stamps()}
        new = [record for record in records if record.key not in here or not self.has(record.key)]
        stamped = [(record, self._records.put(record.key, record.to_dict())) for record in new]
        with self._transaction() as index:
            for record, stamp in stamped:
                _remember(index, record, stamp)
        return len(new), len(records) - len(new)

    def close(self) -> None:
        """Give up our claims and close the index."""
        with self._lock:
            try:
                self.release()
            finally:
                self._index.close()

    # The folder and its index

    def _open(self, create: bool) -> str:
        path = self.folder / "store.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise GradPivotError(f"{self.folder} is a file; name a folder for the store")
        if not path.exists():
            if not create:
                raise GradPivotError(
                    f"there is no store in {self.folder}; make one with 'gradpivot sweep digits --store {self.folder}'"
                )
            write_text(path, json.dumps({"schema": SCHEMA, "id": uuid.uuid4().hex}) + "\n")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            schema, identity = content["schema"], str(content["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise GradPivotError(
                f"{path} is damaged ({error}); delete that one file, the runs beside it are safe"
            ) from None
        if schema != SCHEMA:
            raise GradPivotError(f"{self.folder} has the schema {schema!r}; this version reads {SCHEMA!r}")
        return identity

    def _connect(self) -> sqlite3.Connection:
        """The index; one that is damaged is thrown away and made anew, one that cannot be written is kept in memory."""
        path = self.folder / "index.sqlite"
        try:
            return _opened(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                if not os.access(self.folder, os.W_OK):
                    return _opened(Path(":memory:"))
                raise _as_disk_error(error, path) from error
            for ending in ("", "-wal", "-shm"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
            return _opened(path)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one writer at a time, over processes and threads."""
        with self._lock:
            try:
                self._index.execute("BEGIN IMMEDIATE")
                yield self._index
                self._index.execute("COMMIT")
            except BaseException as error:
                if self._index.in_transaction:
                    self._index.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise _as_disk_error(error, self.folder / "index.sqlite") from error
                raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector, which looks through all that is being made, again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _opened(path: Path) -> sqlite3.Connection:
    # Autocommit mode: transactions are ours. Other processes' writes are waited for.
    index = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        index.execute("PRAGMA journal_mode = WAL")
        # The files are the truth: after a power cut the index may lose its last lines, and finds them again.
        index.execute("PRAGMA synchronous = NORMAL")
        index.executescript(_TABLES)
    except BaseException:
        index.close()
        raise
    return index


def _is_damage(error: sqlite3.Error) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


def _as_disk_error(error: sqlite3.OperationalError, path: Path) -> Exception:
    """SQLite's words for a full disk as the OSError that callers know."""
    if "full" in str(error) or "disk I/O" in str(error):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return GradPivotError(
        f"the index {path} cannot be used ({error}); delete it, it is rebuilt from the runs"
    )


def _remember(index: sqlite3.Connection, record: Record, stamp: Stamp) -> None:
    row = json.dumps(record.without_history().to_dict())
    index.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (record.key, *stamp, row))


def _is_over(owner: str, host: str, pid: int, until: float) -> bool:
    """Whether a claim has lapsed: no heartbeat for a lease, or its process on this machine is gone."""
    if time.time() > until:
        return True
    return host == socket.gethostname() and not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Killed, but its parent has not looked yet: Linux says so, elsewhere the lease runs out.
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return state != "Z"


def _exported(path: Path) -> Iterator[Record]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GradPivotError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(
            f"{path} is not text in UTF-8; give what 'gradpivot store export' wrote"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield Record.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GradPivotError(
                f"{path}, line {number} is not an exported run ({error}); nothing was taken in"
            ) from None
