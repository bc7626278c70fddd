from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.results.record import Record
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.store import index, leases
from gradpivot.sweep.store.records import seal
from gradpivot.sweep.store.store import Store
from made_records import finished_run


def file_of(store: Store, one: Record) -> Path:
    return store.folder / "runs" / one.key[:2] / f"{one.key}.json"


def damage(path: Path, how: str) -> None:
    text = path.read_text()
    if how == "cut":
        path.write_text(text[: len(text) // 2])
    elif how == "changed":
        path.write_text(text.replace('"ua": 0.8', '"ua": 0.9'))
    elif how == "empty":
        path.write_text("")
    elif how == "binary":
        path.write_bytes(b"\xff\x00" * 50)
    else:
        path.write_text(text.replace(path.stem, digest_of("another")))


# Records


def test_keeps_and_gives_back(store):
    one = finished_run(1)
    assert store.get(one.key) is None
    assert not store.has(one.key)
    store.put(one)
    assert store.has(one.key)
    assert store.get(one.key) == one
    store.put(finished_run(2))
    assert store.records() == sorted([one, finished_run(2)], key=lambda r: r.key)
    assert Store(store.folder).records() == store.records()


def test_done_says_what_diverged(store):
    bad = replace(finished_run(2), point=replace(finished_run(2).point, diverged={"step": 3, "reason": "nan"}))
    store.put(finished_run(1))
    store.put(bad)
    assert store.done([finished_run(1).key, bad.key, digest_of(3)]) == {finished_run(1).key: False, bad.key: True}


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "binary", "renamed"])
def test_damaged_records_are_named_not_read_and_can_be_replaced(store, how):
    one, other = finished_run(1), finished_run(2)
    store.put(one)
    store.put(other)
    path = file_of(store, one)
    damage(path, how)
    fresh = Store(store.folder)
    assert fresh.get(one.key) is None
    assert fresh.done([one.key, other.key]) == {other.key: False}
    assert fresh.records() == [other]
    assert path in fresh.damaged
    sound, (damaged,) = Store(store.folder).check()
    assert sound == 1
    assert damaged.startswith(f"{path.name} (")
    fresh.put(one)
    assert fresh.get(one.key) == one
    assert len(fresh.records()) == 2


def test_records_follow_the_files_whoever_changes_them(store):
    for number in range(6):
        store.put(finished_run(number))
    assert len(store.records()) == 6
    file_of(store, finished_run(0)).unlink()
    other = Store(store.folder)
    other.put(finished_run(7))
    other.put(finished_run(1, ua=0.25))
    found = {r.seed: r.point.scores.ua for r in store.records()}
    assert found == {1: 0.25, 2: 0.8, 3: 0.8, 4: 0.8, 5: 0.8, 7: 0.8}


def test_a_half_written_file_is_no_record(store):
    store.put(finished_run(1))
    (file_of(store, finished_run(1)).parent / f".{finished_run(2).key}.json.xyz.json").write_text("{")
    assert len(store.records()) == 1
    assert store.check() == (1, [])


def drop(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["deleted", "garbage", "page", "text", "empty", "rows of an older version"])
def test_the_index_can_be_lost(tmp_path, how):
    first = Store(tmp_path / "s", create=True)
    for number in range(3):
        first.put(finished_run(number))
    first.claim((digest_of(number) for number in range(300)), 300)
    before = first.records()
    first._index.close()
    index = tmp_path / "s" / "index.sqlite"
    if how == "deleted":
        drop(index)
    elif how == "garbage":
        index.write_bytes(os.urandom(20_000))
    elif how == "page":
        content = bytearray(index.read_bytes())
        assert len(content) > 5 * 4096
        content[3 * 4096 : 5 * 4096] = b"\xab" * 8192
        index.write_bytes(content)
    elif how == "text":
        index.write_text("this is no database, whatever its name says" * 100)
    elif how == "empty":
        index.write_bytes(b"")
    else:
        drop(index)
        sqlite3.connect(index).execute("CREATE TABLE records (key TEXT, row TEXT)").connection.close()
    again = Store(tmp_path / "s")
    assert again.records() == before
    assert again.claim(["a"], 1) == ["a"]
    again.close()


def test_only_the_files_are_results(store):
    """Rows that claim to be runs, as an index of an older version has them, are not read and not exported."""
    store.put(finished_run(1))
    rows = store._index._connection
    rows.execute("CREATE TABLE records (key TEXT PRIMARY KEY, size INTEGER, modified INTEGER, row TEXT)")
    size, modified = (stat := file_of(store, finished_run(1)).stat()).st_size, stat.st_mtime_ns
    forged = json.dumps(finished_run(1, ua=1.0).to_dict())
    rows.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (finished_run(1).key, size, modified, forged))
    again = Store(store.folder)
    assert again.records() == [finished_run(1)]
    again.export(store.folder / "out.jsonl")
    assert '"ua": 0.8' in (store.folder / "out.jsonl").read_text()
    assert again.check() == (1, [])


def test_a_claim_or_failure_that_makes_no_sense_is_no_claim(store):
    rows = store._index._connection
    rows.execute("INSERT INTO leases VALUES ('a', 7, x'00', 'x', 'y', 'z')")
    rows.execute("INSERT INTO failures VALUES (1, 2, 3, 4)")
    assert store.claimed_elsewhere() == 0
    assert store.claim(["a"], 1) == ["a"]
    assert store.failures() == [("1", "2", "3")]


def test_damage_while_it_is_open_is_one_line(store, monkeypatch):
    store._index._connection.execute("DROP TABLE leases")
    with pytest.raises(GradPivotError, match="delete it, the runs are safe"):
        store.claim(["a"], 1)
    with pytest.raises(GradPivotError, match="delete it, the runs are safe"):
        store.claimed_elsewhere()
    store._index._connection.executescript(leases.TABLE)


def test_a_folder_that_cannot_be_written_is_read(tmp_path):
    made = Store(tmp_path / "store", create=True)
    made.put(finished_run(1))
    made.close()
    with read_only(made.folder):
        with pytest.raises(OSError, match=r"Read-only|denied"):
            (made.folder / "x").touch()
        only = Store(made.folder)
        assert only.records() == [finished_run(1)]
        assert only.check() == (1, [])
        only.export(tmp_path / "out.jsonl")
        only.close()


class read_only:  # noqa: N801 - a context manager
    """A folder nobody can write to: for root that takes a mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        if os.geteuid() != 0:
            self.folder.chmod(0o555)
            return
        for words in (["--bind"], ["-o", "remount,ro,bind"]):
            done = subprocess.run(
                ["mount", *words, str(self.folder), str(self.folder)], capture_output=True, check=False
            )
            if done.returncode:
                pytest.skip("this machine lets nobody mount")

    def __exit__(self, *_: object) -> None:
        if os.geteuid() != 0:
            self.folder.chmod(0o755)
        else:
            subprocess.run(["umount", str(self.folder)], check=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "delete this file only"),
        ('{"schema": "gradpivot.store/1"}', "delete this file only"),
        ('{"schema": "gradpivot.store/9", "id": "x"}', "this version reads"),
    ],
)
def test_stores_that_are_none(tmp_path, content, message):
    with pytest.raises(GradPivotError, match="there is no store"):
        Store(tmp_path)
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(GradPivotError, match=message):
        Store(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(GradPivotError, match="is a file"):
        Store(tmp_path / "file", create=True)


def test_a_full_disk_is_told_as_one(store, monkeypatch):
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    told = index._as_disk_error(full, store.folder / "index.sqlite")
    assert isinstance(told, OSError)
    assert told.errno == errno.ENOSPC

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.put(finished_run(1))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store.put(finished_run(2))
    monkeypatch.undo()
    assert store.records() == [finished_run(1)]
    assert not [p for p in store.folder.rglob(".*") if p.is_file()]


# Originals


def test_originals_are_checked(store):
    assert not store.has_original("k")
    store.put_original("k", b"weights")
    assert store.has_original("k")
    assert not store.damaged
    store.original_path("k").write_bytes(b"weightz")
    assert not store.has_original("k")
    assert store.damaged == {store.original_path("k"): "wrong checksum"}
    assert store.check()[0] == 0
    store.put_original("k", b"weights")
    assert store.has_original("k")
    store.original_path("k").with_suffix(".sha256").unlink()
    assert not store.has_original("k")


# Exchange


def test_export_and_import_round_trip_and_merge(store, tmp_path):
    for number in range(3):
        store.put(finished_run(number))
    assert store.export(tmp_path / "a.jsonl") == 3
    other = Store(tmp_path / "other", create=True)
    other.put(finished_run(2, ua=0.5))
    other.put(finished_run(9))
    assert other.import_runs(tmp_path / "a.jsonl") == (2, 1, 1)
    assert {r.seed: r.point.scores.ua for r in other.records()} == {0: 0.8, 1: 0.8, 2: 0.5, 9: 0.8}
    assert other.import_runs(tmp_path / "a.jsonl") == (0, 3, 1)
    assert other.check() == (4, [])
    empty = Store(tmp_path / "empty", create=True)
    assert empty.import_runs(tmp_path / "a.jsonl") == (3, 0, 0)
    assert empty.records() == store.records()
    empty.export(tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_damaged_record_is_replaced_by_an_imported_one(store, tmp_path):
    store.put(finished_run(1))
    store.export(tmp_path / "a.jsonl")
    damage(file_of(store, finished_run(1)), "cut")
    assert store.import_runs(tmp_path / "a.jsonl") == (1, 0, 0)
    assert store.records() == [finished_run(1)]


def test_the_same_run_twice_in_a_file_counts_once(store, tmp_path):
    line = json.dumps(seal(finished_run(1).key, finished_run(1).to_dict()))
    (tmp_path / "a.jsonl").write_text(f"{line}\n\n{line}\n")
    assert store.import_runs(tmp_path / "a.jsonl") == (1, 0, 0)


def bad_lines() -> dict[str, str]:
    good = finished_run(5).to_dict()
    changes = {
        "schema": {**good, "schema": "x"},
        "key": {**good, "key": "../../../tmp/evil"},
        "number": {**good, "key": 7},
        "scores": {**good, "point": {**good["point"], "scores": {**good["point"]["scores"], "ua": 95}}},
        "no point": {name: value for name, value in good.items() if name != "point"},
    }
    # Sealed, so that it is not the checksum that gives them away.
    return {"cut": json.dumps(good)[:-9], "list": "[]", "text": "hello", "unsealed": json.dumps(good)} | {
        name: json.dumps(seal("key", value)) for name, value in changes.items()
    }


@pytest.mark.parametrize("how", bad_lines())
def test_a_bad_line_is_named_and_nothing_is_taken_in(store, tmp_path, how):
    first, last = (json.dumps(seal(r.key, r.to_dict())) for r in (finished_run(1), finished_run(2)))
    lines = [first, bad_lines()[how], last]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(GradPivotError, match="line 2 is not an exported run"):
        store.import_runs(tmp_path / "a.jsonl")
    assert store.records() == []
    assert not list(tmp_path.rglob("evil*"))


def test_files_that_are_no_export(store, tmp_path):
    with pytest.raises(GradPivotError, match="cannot read"):
        store.import_runs(tmp_path / "none")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(GradPivotError, match="UTF-8"):
        store.import_runs(tmp_path / "b")


def test_a_failure_does_not_follow_a_run_that_another_has_done(store):
    store.put(finished_run(1))
    store.fail(finished_run(1).key, "what", "why")
    assert store.failures() == []


def test_an_export_that_was_changed_is_refused(store, tmp_path):
    store.put(finished_run(1))
    store.export(tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    (tmp_path / "out.jsonl").write_text(text.replace('"seed": 1', '"seed": 7'))
    other = Store(tmp_path / "other", create=True)
    with pytest.raises(GradPivotError, match="wrong checksum"):
        other.import_runs(tmp_path / "out.jsonl")
    assert other.records() == []


def test_an_original_without_or_with_a_damaged_seal_is_not_trusted(store):
    store.put_original("ab", b"weights")
    seal = store.original_path("ab").with_suffix(".sha256")
    seal.write_bytes(b"\xff\xfe")
    assert not store.has_original("ab")
    seal.unlink()
    assert "ab.safetensors (no checksum)" in store.check()[1]


def test_failures_are_kept_until_the_run_is_done(store):
    one, other = finished_run(1), finished_run(2)
    store.fail(one.key, "CUP", "why")
    store.fail(other.key, "GA", "because")
    assert [f[1:] for f in store.failures()] == [("CUP", "why"), ("GA", "because")]
    assert store.failures({other.key}) == [(other.key, "GA", "because")]
    store.put(one)
    assert [f[0] for f in store.failures()] == [other.key]
