"""The crash-safe store of a sweep: finished runs, originals and claims. No torch.

Each finished run is one checksummed file (:mod:`gradpivot.sweep.store.records`), and only these files are results. The
index (:mod:`gradpivot.sweep.store.index`) holds what is under way: claims (:mod:`gradpivot.sweep.store.leases`) and the
last failures. It can be deleted at any time.
"""

from __future__ import annotations

import gc
import hashlib
import json
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gradpivot.errors import GradPivotError
from gradpivot.results import Record
from gradpivot.runtime import create_text, describe_error, parse_json, remove_stale, replacing, write_text
from gradpivot.sweep.store import leases
from gradpivot.sweep.store.exchange import read_exported, write_exported
from gradpivot.sweep.store.index import Index
from gradpivot.sweep.store.leases import Leases
from gradpivot.sweep.store.records import Records

__all__ = ["Failure", "Store"]

STORE_SCHEMA = "gradpivot.store/1"
_TABLES = """
DROP TABLE IF EXISTS records;
CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, what TEXT, reason TEXT, seen REAL);
"""

Failure = tuple[str, str, str]
"""Key, description of the run, reason."""


class Store:
    """A folder of finished runs.

    Args:
        folder: Folder of the store.
        create: Whether to create a missing store.

    Raises:
        GradPivotError: If the folder has no store, or one that this version cannot read.
    """

    def __init__(self, folder: str | Path, *, create: bool = False) -> None:
        self.folder = Path(folder)
        self._records = Records(self.folder / "runs")
        self.id = self._open(create)
        self._index = Index(self.folder / "index.sqlite", _TABLES + leases.TABLE)
        self._leases = Leases(self._index)
        if create:
            self._remove_stale()

    @property
    def damaged(self) -> dict[Path, str]:
        """Damaged files found so far, and what is wrong with each."""
        return self._records.damaged

    def describe_damaged(self) -> list[str]:
        """Names of the damaged files found so far, with what is wrong."""
        return [f"{path.name} ({why})" for path, why in self.damaged.items()]

    def original_path(self, key: str) -> Path:
        """File of an original model's weights."""
        return self.folder / "originals" / f"{key}.safetensors"

    def put_original(self, key: str, weights: bytes, seconds: float | None = None) -> None:
        """Write an original model's weights with their checksum and the training time; release the claim on it."""
        path = self.original_path(key)
        with replacing(path) as temporary:
            temporary.write_bytes(weights)
        if seconds is not None:
            write_text(path.with_suffix(".seconds"), f"{seconds}\n")
        write_text(path.with_suffix(".sha256"), hashlib.sha256(weights).hexdigest() + "\n")
        self.release(key)

    def original_seconds(self, key: str) -> float | None:
        """Training time of an original, or None if unknown."""
        try:
            return float(self.original_path(key).with_suffix(".seconds").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def has_original(self, key: str) -> bool:
        """Whether an original's weights exist and are intact; a damaged file is added to :attr:`damaged`."""
        path = self.original_path(key)
        try:
            expected = path.with_suffix(".sha256").read_text(encoding="utf-8").strip()
            if hashlib.sha256(path.read_bytes()).hexdigest() == expected:
                return True
            self.damaged[path] = "wrong checksum"
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            self.damaged[path] = f"its checksum cannot be read: {describe_error(error)}"
        return False

    def checkpoint_path(self, key: str) -> Path:
        """Checkpoint file of a running job."""
        return self.folder / "checkpoints" / f"{key}.pt"

    def remove_checkpoints(self, finished: Collection[str]) -> None:
        """Remove the checkpoints of finished runs and originals, which a kill may leave."""
        for path in (self.folder / "checkpoints").glob("*.pt"):
            if path.stem in finished or self.original_path(path.stem).with_suffix(".sha256").exists():
                path.unlink(missing_ok=True)

    # Records

    def put(self, record: Record) -> None:
        """Write a finished run and release the claim on it."""
        self._records.put(record.key, record.to_dict())
        with self._index.transaction() as index:
            index.execute("DELETE FROM leases WHERE key = ?", (record.key,))
            index.execute("DELETE FROM failures WHERE key = ?", (record.key,))

    def has(self, key: str) -> bool:
        """Whether a finished run exists and is intact."""
        return self.get(key) is not None

    def get(self, key: str) -> Record | None:
        """A finished run with its telemetry, or None if it is missing or damaged."""
        content = self._records.get(key)
        if content is None:
            return None
        try:
            record = Record.from_dict(content)
            if record.key != key:
                raise GradPivotError(f"the record is that of another run, {record.key}")
        except GradPivotError as error:
            self.damaged[self._records.path(key)] = str(error)
            return None
        return record

    def done(self, keys: Sequence[str]) -> dict[str, bool]:
        """The finished ones of these runs and whether they diverged. Reads and verifies every file."""
        found = ((key, self.get(key)) for key in keys)
        return {key: record.point.diverged is not None for key, record in found if record is not None}

    def records(self) -> list[Record]:
        """All finished runs without telemetry, ordered by key. Reads and verifies every file."""
        with _gc_disabled():
            found = (self.get(key) for key in sorted(self._records.keys()))
            return [record.without_history() for record in found if record is not None]

    def check(self) -> tuple[int, list[str]]:
        """Verify all runs and originals: the number of intact files, and the damaged ones with what is wrong."""
        weights = sorted((self.folder / "originals").glob("*.safetensors"))
        sound = sum(map(self.has, self._records.keys())) + sum(self.has_original(path.stem) for path in weights)
        unsealed = {path: "no checksum" for path in weights if not path.with_suffix(".sha256").exists()}
        self.damaged.update(unsealed)
        return sound, self.describe_damaged()

    # Claims

    def claim(self, keys: Iterable[str], most: int) -> list[str]:
        """Claim up to ``most`` free ``keys`` until we finish them, release them or die."""
        return self._leases.claim(keys, most)

    def heartbeat(self) -> None:
        """Renew our claims for another lease."""
        self._leases.heartbeat()

    def claimed_elsewhere(self) -> int:
        """Number of runs claimed by other live sweeps on this store."""
        return self._leases.elsewhere()

    def release(self, key: str | None = None) -> None:
        """Give up one claim, or all of ours."""
        self._leases.release(key)

    # Failures

    def fail(self, key: str, what: str, reason: str) -> None:
        """Record a failed run, unless another sweep has finished it; the next sweep retries it."""
        self.release(key)
        if self.has(key):
            return
        with self._index.transaction() as index:
            index.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", (key, what, reason, time.time()))

    def failures(self, keys: Collection[str] | None = None) -> list[Failure]:
        """Failed runs, optionally only those in ``keys``, the latest last."""
        rows = self._index.read("SELECT key, what, reason FROM failures ORDER BY seen")
        failures = [(str(key), str(what), str(reason)) for key, what, reason in rows]
        return [failure for failure in failures if keys is None or failure[0] in keys]

    # Exchange

    def export(self, path: str | Path, *, pictures: bool = True) -> int:
        """Write all finished runs as JSON lines and return their number.

        Args:
            path: Output file.
            pictures: Whether to include generated images, which make up most of the file.
        """
        records = [record if pictures else replace(record, pictures=None) for record in self.records()]
        write_exported(path, records)
        return len(records)

    def import_runs(self, path: str | Path) -> tuple[int, int, int]:
        """Import exported runs; return how many were new, already there (and kept), and there with other scores.

        Raises:
            GradPivotError: If a line is invalid; nothing is imported then.
        """
        records = list({record.key: record for record in read_exported(Path(path))}.values())
        here = {record.key: self.get(record.key) for record in records}
        new = [record for record in records if here[record.key] is None]
        for record in new:
            self._records.put(record.key, record.to_dict())
        known = [(mine, record) for record in records if (mine := here[record.key]) is not None]
        return len(new), len(known), sum(m.point.scores != r.point.scores for m, r in known)

    def close(self) -> None:
        """Release our claims and close the index."""
        try:
            self.release()
            self._remove_stale()
        finally:
            self._index.close()

    # The folder

    def _remove_stale(self) -> None:
        """Remove the temporary files of killed sweeps and workers."""
        for name in ("checkpoints", "originals"):
            remove_stale(self.folder / name)

    def _open(self, create: bool) -> str:
        path = self.folder / "store.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise GradPivotError(f"{self.folder} is a file; name a folder for the store")
        if not path.exists():
            if not create:
                raise GradPivotError(
                    f"there is no store in {self.folder}; create one with "
                    f"'gradpivot sweep digits --store {self.folder}'"
                )
            create_text(path, json.dumps({"schema": STORE_SCHEMA, "id": uuid.uuid4().hex}) + "\n")
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
            schema, identity = content["schema"], str(content["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise GradPivotError(f"{path} is damaged ({error}); delete this file only, the runs are safe") from None
        if schema != STORE_SCHEMA:
            raise GradPivotError(f"{self.folder} has schema {schema!r}; this version reads {STORE_SCHEMA!r}")
        return identity


@contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable the garbage collector, which would scan all new objects repeatedly."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
