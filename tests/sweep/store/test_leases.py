"""Claims: one worker a run, however many sweeps share a store and however they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from multiprocessing import get_context

from hypothesis import HealthCheck, given, settings, strategies as st

from gradpivot.runtime import process_start
from gradpivot.sweep import Store
from gradpivot.sweep.store import leases
from made_records import finished_run


def test_claims_are_exclusive_until_released_or_done(store):
    other = Store(store.folder)
    keys = [finished_run(n).key for n in range(3)]
    assert store.claim(keys, 2) == keys[:2]
    assert store.claim(keys, 3) == [keys[2]]
    assert other.claim(keys, 3) == []
    assert other.claimed_elsewhere() == 3
    assert store.claimed_elsewhere() == 0
    other.release(keys[0])
    assert other.claim(keys, 3) == []
    store.release(keys[0])
    assert other.claim(keys, 3) == keys[:1]
    store.put(finished_run(1))
    assert other.claim(keys, 3) == [keys[1]]
    store.fail(keys[2], "what", "why")
    assert other.claim(keys, 3) == [keys[2]]
    other.close()
    assert store.claim(keys, 3) == keys


def test_a_live_process_keeps_its_claims_however_long_it_sleeps(store, monkeypatch):
    other = Store(store.folder)
    store.claim(["a"], 1)
    now = time.time()
    monkeypatch.setattr(leases.time, "time", lambda: now + 10 * leases.LEASE_SECONDS)
    assert other.claim(["a"], 1) == []


def test_a_number_that_came_again_is_another_process(store, monkeypatch):
    other = Store(store.folder)
    began = process_start(os.getpid())
    monkeypatch.setattr(leases, "process_start", lambda pid: began - 1)
    store.claim(["a"], 1)
    monkeypatch.undo()
    assert other.claim(["a"], 1) == ["a"]


def test_a_claim_lapses_without_a_heartbeat(store, monkeypatch):
    monkeypatch.setattr(leases, "process_start", lambda pid: 0)  # a system that does not tell when a process began
    other = Store(store.folder)
    store.claim(["a", "b"], 2)
    now = time.time()
    monkeypatch.setattr(leases.time, "time", lambda: now + leases.LEASE_SECONDS - 5)
    assert other.claim(["a"], 1) == []
    store.heartbeat()
    monkeypatch.setattr(leases.time, "time", lambda: now + 2 * leases.LEASE_SECONDS - 10)
    assert other.claim(["a"], 1) == []
    assert other.claimed_elsewhere() == 2
    monkeypatch.setattr(leases.time, "time", lambda: now + 2 * leases.LEASE_SECONDS)
    assert other.claimed_elsewhere() == 0
    assert other.claim(["a"], 1) == ["a"]
    store.heartbeat()
    assert Store(store.folder).claim(["a", "b"], 2) == []


def test_a_dead_processes_claim_is_taken_at_once(store):
    code = f"import os; from gradpivot.sweep import Store; print(Store({str(store.folder)!r}).claim(['a'], 1)); "
    done = subprocess.run(
        [sys.executable, "-c", code + "import sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "['a']"
    assert done.returncode == -9
    assert store.claim(["a"], 1) == ["a"]


def test_a_claim_of_another_machine_waits_for_its_lease(store, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    far = Store(store.folder)
    monkeypatch.setattr(leases.os, "getpid", lambda: 2**22 + 7)
    far.claim(["a"], 1)
    monkeypatch.undo()
    assert store.claim(["a"], 1) == []


def test_so_does_one_of_a_container_that_has_this_machines_name(store, monkeypatch):
    """It may be alive: its processes cannot be seen from here."""
    monkeypatch.setattr("pathlib.Path.readlink", lambda path: "pid:[1]")
    other = Store(store.folder)
    monkeypatch.setattr(leases.os, "getpid", lambda: 2**22 + 7)
    monkeypatch.setattr(leases, "process_start", lambda pid: 5)
    other.claim(["a"], 1)
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
        key = finished_run(number).key
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
            owners[who].put(finished_run(number))
            held.pop(key, None)
    for who, owner in enumerate(owners):
        assert owner.claimed_elsewhere() == sum(w != who for w in held.values())
    for owner in owners:
        owner.close()
