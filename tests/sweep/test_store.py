from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scores import Scores
from gradpivot.frontier.frontier import Point
from gradpivot.frontier.record import Record
from gradpivot.sweep import store as stores
from gradpivot.sweep.cell import digest_of
from gradpivot.sweep.records import seal
from gradpivot.sweep.store import Store

SCORES = Scores(
    ra=0.9, ua=0.8, ta=0.7, mia=0.6, mia_svc=0.5, mia_svc_accuracy=0.9, mia_svc_determined=True,
    n_forget=3, n_retain=4, n_test=5,
)  # fmt: skip


def record(number: int, ua: float = 0.8) -> Record:
    return Record(
        key=digest_of(number), problem="p", kind="class", forget="3", seed=number, role="run", protocol="clean",
        series="CUP \u2028 of two lines", method="cup",
        point=Point(label="CUP", settings={"method": "cup"}, scores=replace(SCORES, ua=ua), knob=0.5, seconds=0.25),
        provenance={"timing": {"total": 1.5}},
    )  # fmt: skip


def file_of(store: Store, one: Record) -> Path:
    return store.folder / "runs" / one.key[:2] / f"{one.key}.json"


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store", create=True)
    yield made
    made.close()


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
    one = record(1)
    assert store.get(one.key) is None
    assert not store.has(one.key)
    store.put(one)
    assert store.has(one.key)
    assert store.get(one.key) == one
    store.put(record(2))
    assert store.records() == sorted([one, record(2)], key=lambda r: r.key)
    assert Store(store.folder).records() == store.records()


def test_done_says_what_diverged(store):
    bad = replace(record(2), point=replace(record(2).point, diverged={"step": 3, "reason": "nan"}))
    store.put(record(1))
    store.put(bad)
    assert store.done([record(1).key, bad.key, digest_of(3)]) == {record(1).key: False, bad.key: True}


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "binary", "renamed"])
def test_damaged_records_are_named_not_read_and_can_be_replaced(store, how):
    one, other = record(1), record(2)
    store.put(one)
    store.put(other)
    path = file_of(store, one)
    damage(path, how)
    fresh = Store(store.folder)
    assert fresh.get(one.key) is None
    assert fresh.done([one.key, other.key]) == {other.key: False}
    assert fresh.records() == [other]
    assert path in fresh.damaged
    assert Store(store.folder).check() == (1, [path.name])
    fresh.put(one)
    assert fresh.get(one.key) == one
    assert len(fresh.records()) == 2


def test_records_follow_the_files_whoever_changes_them(store):
    for number in range(6):
        store.put(record(number))
    assert len(store.records()) == 6
    file_of(store, record(0)).unlink()
    other = Store(store.folder)
    other.put(record(7))
    other.put(record(1, ua=0.25))
    found = {r.seed: r.point.scores.ua for r in store.records()}
    assert found == {1: 0.25, 2: 0.8, 3: 0.8, 4: 0.8, 5: 0.8, 7: 0.8}


def test_a_half_written_file_is_no_record(store):
    store.put(record(1))
    (file_of(store, record(1)).parent / f".{record(2).key}.json.xyz.json").write_text("{")
    assert len(store.records()) == 1
    assert store.check() == (1, [])


def drop(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["deleted", "garbage", "page", "text", "empty", "older tables"])
def test_the_index_is_rebuilt_from_the_files(tmp_path, how):
    first = Store(tmp_path / "s", create=True)
    for number in range(60):
        first.put(record(number))
    before = first.records()
    first.close()
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
        sqlite3.connect(index).execute("CREATE TABLE records (other TEXT)").connection.close()
    again = Store(tmp_path / "s")
    if how == "older tables":
        with pytest.raises(GradPivotError, match="delete it, it is rebuilt"):
            again.records()
        return
    assert again.records() == before
    assert again.claim(["a"], 1) == ["a"]
    again.close()


def test_damage_while_it_is_open_is_one_line(store, monkeypatch):
    store._index.execute("DROP TABLE leases")
    with pytest.raises(GradPivotError, match="delete it, it is rebuilt"):
        store.claim(["a"], 1)
    with pytest.raises(GradPivotError, match="delete it, it is rebuilt"):
        store.claimed_elsewhere()
    store._index.executescript(stores._TABLES)


def test_a_folder_that_cannot_be_written_is_read(tmp_path):
    made = Store(tmp_path / "store", create=True)
    made.put(record(1))
    made.close()
    with read_only(made.folder):
        with pytest.raises(OSError, match=r"Read-only|denied"):
            (made.folder / "x").touch()
        only = Store(made.folder)
        assert only.records() == [record(1)]
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
        ("{", "delete that one file"),
        ('{"schema": "gradpivot.store/1"}', "delete that one file"),
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
    told = stores._as_disk_error(full, store.folder / "index.sqlite")
    assert isinstance(told, OSError)
    assert told.errno == errno.ENOSPC

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.put(record(1))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store.put(record(2))
    monkeypatch.undo()
    assert store.records() == [record(1)]
    assert not [p for p in store.folder.rglob(".*") if p.is_file()]


# Originals


def test_originals_are_checked(store):
    assert not store.has_original("k")
    store.put_original("k", b"weights")
    assert store.has_original("k")
    assert store.damaged == []
    store.original_path("k").write_bytes(b"weightz")
    assert not store.has_original("k")
    assert store.damaged == [store.original_path("k")]
    assert store.check()[0] == 0
    store.put_original("k", b"weights")
    assert store.has_original("k")
    store.original_path("k").with_suffix(".sha256").unlink()
    assert not store.has_original("k")


# Exchange


def test_export_and_import_round_trip_and_merge(store, tmp_path):
    for number in range(3):
        store.put(record(number))
    assert store.export(tmp_path / "a.jsonl") == 3
    other = Store(tmp_path / "other", create=True)
    other.put(record(2, ua=0.5))
    other.put(record(9))
    assert other.take_in(tmp_path / "a.jsonl") == (2, 1, 1)
    assert {r.seed: r.point.scores.ua for r in other.records()} == {0: 0.8, 1: 0.8, 2: 0.5, 9: 0.8}
    assert other.take_in(tmp_path / "a.jsonl") == (0, 3, 1)
    assert other.check() == (4, [])
    empty = Store(tmp_path / "empty", create=True)
    assert empty.take_in(tmp_path / "a.jsonl") == (3, 0, 0)
    assert empty.records() == store.records()
    empty.export(tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_damaged_record_is_replaced_by_an_imported_one(store, tmp_path):
    store.put(record(1))
    store.export(tmp_path / "a.jsonl")
    damage(file_of(store, record(1)), "cut")
    assert store.take_in(tmp_path / "a.jsonl") == (1, 0, 0)
    assert store.records() == [record(1)]


def test_the_same_run_twice_in_a_file_counts_once(store, tmp_path):
    line = json.dumps(seal(record(1).key, record(1).to_dict()))
    (tmp_path / "a.jsonl").write_text(f"{line}\n\n{line}\n")
    assert store.take_in(tmp_path / "a.jsonl") == (1, 0, 0)


def bad_lines() -> dict[str, str]:
    good = record(5).to_dict()
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
    first, last = (json.dumps(seal(r.key, r.to_dict())) for r in (record(1), record(2)))
    lines = [first, bad_lines()[how], last]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(GradPivotError, match="line 2 is not an exported run"):
        store.take_in(tmp_path / "a.jsonl")
    assert store.records() == []
    assert not list(tmp_path.rglob("evil*"))


def test_files_that_are_no_export(store, tmp_path):
    with pytest.raises(GradPivotError, match="cannot read"):
        store.take_in(tmp_path / "none")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(GradPivotError, match="UTF-8"):
        store.take_in(tmp_path / "b")


# Claims


def test_claims_are_exclusive_until_released_or_done(store):
    other = Store(store.folder)
    keys = [record(n).key for n in range(3)]
    assert store.claim(keys, 2) == keys[:2]
    assert store.claim(keys, 3) == [keys[2]]
    assert other.claim(keys, 3) == []
    assert other.claimed_elsewhere() == 3
    assert store.claimed_elsewhere() == 0
    other.release(keys[0])
    assert other.claim(keys, 3) == []
    store.release(keys[0])
    assert other.claim(keys, 3) == keys[:1]
    store.put(record(1))
    assert other.claim(keys, 3) == [keys[1]]
    store.fail(keys[2], "what", "why")
    assert other.claim(keys, 3) == [keys[2]]
    other.close()
    assert store.claim(keys, 3) == keys


def test_a_live_process_keeps_its_claims_however_long_it_sleeps(store, monkeypatch):
    other = Store(store.folder)
    store.claim(["a"], 1)
    now = time.time()
    monkeypatch.setattr(stores.time, "time", lambda: now + 10 * stores.LEASE_SECONDS)
    assert other.claim(["a"], 1) == []


def test_a_number_that_came_again_is_another_process(store, monkeypatch):
    other = Store(store.folder)
    began = stores._began(os.getpid())
    monkeypatch.setattr(stores, "_began", lambda pid: began - 1)
    store.claim(["a"], 1)
    monkeypatch.undo()
    assert other.claim(["a"], 1) == ["a"]


def test_a_claim_lapses_without_a_heartbeat(store, monkeypatch):
    monkeypatch.setattr(stores, "_began", lambda pid: 0)  # a system that does not tell when a process began
    other = Store(store.folder)
    store.claim(["a", "b"], 2)
    now = time.time()
    monkeypatch.setattr(stores.time, "time", lambda: now + stores.LEASE_SECONDS - 5)
    assert other.claim(["a"], 1) == []
    store.heartbeat()
    monkeypatch.setattr(stores.time, "time", lambda: now + 2 * stores.LEASE_SECONDS - 10)
    assert other.claim(["a"], 1) == []
    assert other.claimed_elsewhere() == 2
    monkeypatch.setattr(stores.time, "time", lambda: now + 2 * stores.LEASE_SECONDS)
    assert other.claimed_elsewhere() == 0
    assert other.claim(["a"], 1) == ["a"]
    store.heartbeat()
    assert Store(store.folder).claim(["a", "b"], 2) == []


def test_a_dead_processes_claim_is_taken_at_once(store):
    code = f"import os; from gradpivot.sweep.store import Store; print(Store({str(store.folder)!r}).claim(['a'], 1)); "
    done = subprocess.run(
        [sys.executable, "-c", code + "import sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "['a']"
    assert done.returncode == -9
    assert store.claim(["a"], 1) == ["a"]


def test_a_claim_of_another_machine_waits_for_its_lease(store, monkeypatch):
    monkeypatch.setattr(stores.socket, "gethostname", lambda: "elsewhere")
    far = Store(store.folder)
    monkeypatch.setattr(stores.os, "getpid", lambda: 2**22 + 7)
    far.claim(["a"], 1)
    monkeypatch.undo()
    assert store.claim(["a"], 1) == []


def test_threads_never_share_a_claim(tmp_path):
    Store(tmp_path, create=True)
    keys = [f"{n:03d}" for n in range(200)]
    taken: list[list[str]] = []

    def work(most: int) -> None:
        mine, got = Store(tmp_path), []
        while some := mine.claim([key for key in keys if key not in got], most):
            got += some
        taken.append(got)

    threads = [threading.Thread(target=work, args=(1 + n % 3,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key for some in taken for key in some) == keys


def claim_all(folder: str, keys: list[str], out: object, stop: object) -> None:
    mine, got = Store(folder, create=True), []
    while some := mine.claim([key for key in keys if key not in got], 2):
        got += some
    out.put(got)  # type: ignore[attr-defined]
    # A dead process's claims are free again: live until everybody has counted.
    stop.wait(120)  # type: ignore[attr-defined]


def test_processes_that_open_and_claim_at_once_never_share_a_claim(tmp_path):
    context = get_context("fork")
    keys = [f"{n:03d}" for n in range(100)]
    out, stop = context.Queue(), context.Event()
    folder = str(tmp_path / "new")
    processes = [context.Process(target=claim_all, args=(folder, keys, out, stop)) for _ in range(6)]
    for process in processes:
        process.start()
    taken = [out.get(timeout=120) for _ in processes]
    stop.set()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert sorted(key for some in taken for key in some) == keys
    assert len({Store(folder).id for _ in range(3)}) == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["claim", "release", "all", "done"]), st.integers(0, 4)),
        max_size=25,
    )
)
def test_claims_agree_with_a_plain_model(tmp_path_factory, steps):
    """Three owners, five keys, any order of steps: who holds what is what a dictionary says."""
    folder = tmp_path_factory.mktemp("model")
    owners = [Store(folder, create=True) for _ in range(3)]
    held: dict[str, int] = {}
    for who, what, number in steps:
        key = record(number).key
        if what == "claim":
            assert owners[who].claim([key], 1) == ([] if key in held else [key])
            held.setdefault(key, who)
        elif what == "release":
            owners[who].release(key)
            if held.get(key) == who:
                del held[key]
        elif what == "all":
            owners[who].release()
            held = {k: w for k, w in held.items() if w != who}
        else:
            owners[who].put(record(number))
            held.pop(key, None)
    for who, owner in enumerate(owners):
        assert owner.claimed_elsewhere() == sum(w != who for w in held.values())
    for owner in owners:
        owner.close()


def test_a_failure_does_not_follow_a_run_that_another_has_done(store):
    store.put(record(1))
    store.fail(record(1).key, "what", "why")
    assert store.failures() == []


def test_an_export_that_was_changed_is_refused(store, tmp_path):
    store.put(record(1))
    store.export(tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    (tmp_path / "out.jsonl").write_text(text.replace('"seed": 1', '"seed": 7'))
    other = Store(tmp_path / "other", create=True)
    with pytest.raises(GradPivotError, match="its checksum is wrong"):
        other.take_in(tmp_path / "out.jsonl")
    assert other.records() == []


def test_an_original_without_or_with_a_damaged_seal_is_not_trusted(store):
    store.put_original("ab", b"weights")
    seal = store.original_path("ab").with_suffix(".sha256")
    seal.write_bytes(b"\xff\xfe")
    assert not store.has_original("ab")
    seal.unlink()
    assert "ab.safetensors" in store.check()[1]


def test_failures_are_kept_until_the_run_is_done(store):
    one, other = record(1), record(2)
    store.fail(one.key, "CUP", "why")
    store.fail(other.key, "GA", "because")
    assert [f[1:] for f in store.failures()] == [("CUP", "why"), ("GA", "because")]
    assert store.failures({other.key}) == [(other.key, "GA", "because")]
    store.put(one)
    assert [f[0] for f in store.failures()] == [other.key]
