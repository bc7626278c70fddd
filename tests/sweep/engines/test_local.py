"""Sweeps in real processes, and everything that can be killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.experiments.recipes.recipe import ForgetSpec
from gradpivot.sweep.cell import cells_of
from gradpivot.sweep.engines import local
from gradpivot.sweep.engines.local import LocalEngine
from gradpivot.sweep.sweeping import Sweep

PATIENCE = 240


@pytest.fixture
def engine(lab):
    made: list[LocalEngine] = []

    def make(jobs: int = 1) -> LocalEngine:
        made.append(LocalEngine(jobs, 1, lab.folder / "worker.log"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def told(err: str) -> str:
    """What was said besides how it stands, which a log gets every half minute, and so on a busy machine."""
    standing = re.compile(
        r"recipe  \d+/\d+ done, \d+ running( \([\d %,]+\))?, 0 failed, 0 diverged(, [\d a-z]+ left)?\n"
    )
    return "".join(line for line in err.splitlines(keepends=True) if not standing.fullmatch(line))


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


@pytest.mark.slow
def test_two_workers_give_the_numbers_of_a_plain_loop(lab, expected, engine):
    two = engine(2)
    assert lab.sweep(two).is_whole
    assert lab.by_name() == expected
    assert len(set(lab.pids())) == 2
    assert set(lab.pids()) <= set(two.pids)
    workers = two.pids
    two.close()
    lab.wait_for(lambda: not any(map(lab.is_running, workers)))
    again = engine(2)
    assert lab.sweep(again).before == lab.CELLS
    assert again.pids == []


@pytest.mark.slow
def test_a_worker_killed_in_a_run_loses_that_run_only(lab, expected, engine):
    """Held in its fourth run, killed by -9; a new worker does it again."""
    hold = lab.hold_after(3)
    one = engine()
    store = lab.store()
    sweep = Sweep(lab.cells, store, one)
    killed: list[int] = []

    def watch(_):
        if len(lab.pids()) == 4 and not killed:
            killed.append(lab.pids()[-1])
            os.kill(killed[0], signal.SIGKILL)
            hold.unlink()

    state = sweep.run(watch)
    store.close()
    assert killed
    assert state.is_whole
    assert state.failed == 0
    assert lab.by_name() == expected
    assert len(lab.pids()) == lab.COPIES + 1
    assert one.pids != killed


@pytest.mark.slow
def test_workers_tell_how_far_they_are(lab, engine, monkeypatch):
    """Runs made long enough to be seen: the lab's problem says nothing within a second."""
    code = (lab.folder / f"{lab.module}.py").read_text()
    slow = code.replace(
        "        return super().forget_loss", "        time.sleep(0.7)\n        return super().forget_loss"
    )
    assert slow != code
    (lab.folder / f"{lab.module}.py").write_text(slow)
    # One run of four steps: CUP takes the slow loss four times a step.
    recipe = lab.path.read_text().replace("classes: 0-1", "classes: 0").replace("epochs: 1", "epochs: 2")
    lab.path.write_text(recipe.replace("CUP: {method: cup, gamma: [0.2, 0.8]}", ""))
    one, store, shares = engine(), lab.store(), []
    state = Sweep(lab.cells, store, one).run(lambda state: shares.extend(state.shares))
    store.close()
    assert state.is_whole
    assert {0.25, 0.5, 0.75} & set(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert one.under_way() == {}


@pytest.mark.slow
def test_a_run_that_always_kills_its_worker_fails_after_three_attempts(lab, engine):
    lab.path.write_text(lab.path.read_text().replace("gamma: [0.2, 0.8]", "gamma: 0.2").replace("GA: {method: ga}", ""))
    lab.say("die")
    store = lab.store()
    state = Sweep(lab.cells, store, engine()).run()
    assert (state.total, state.done, state.failed) == (6, 5, 1)
    _, what, why = store.failures()[0]
    assert what.startswith("CUP")
    assert "killed by signal 9, 3 times; the run may need more memory" in why
    store.close()


def test_workers_that_cannot_start_stop_the_sweep(lab, engine, monkeypatch):
    monkeypatch.setattr(local.sys, "executable", shutil.which("false"))
    monkeypatch.setattr(local, "_MAX_SILENT_DEATHS", 1)
    with pytest.raises(GradPivotError, match="worker processes keep dying; see their output in"):
        lab.sweep(engine())
    assert lab.claims() == 0


def test_at_least_one_job(tmp_path):
    with pytest.raises(GradPivotError, match="--jobs is 0"):
        LocalEngine(0, 1, tmp_path / "log")


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.slow
def test_a_sweep_that_is_stopped_loses_the_runs_in_flight_only(lab, expected, how):
    """Ctrl-C (to the whole group, as a terminal sends it), a batch system's SIGTERM, and kill -9."""
    hold = lab.hold_after(4)
    process = lab.cli()
    lab.wait_for(lambda: len(lab.pids()) >= 6 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    workers = children_of(process.pid)
    assert len(workers) == 2
    if how == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(getattr(signal, how))
    _, err = process.communicate(timeout=PATIENCE)
    lab.wait_for(lambda: not any(map(lab.is_running, workers)), "workers are left behind")
    if how == "SIGKILL":
        assert process.returncode == -9
        assert lab.claims() > 0
    else:
        assert process.returncode == 130, err
        assert told(err).count("\n") == 1
        assert f"/{lab.CELLS} done" in err
        assert f"everything done is in {lab.store_folder}" in err
        assert "Run the same command to continue" in err
        assert lab.claims() == 0
    hold.unlink()
    done = lab.scores()
    assert 0 < len(done) < lab.CELLS
    assert lab.store().check() == (len(done) + 1, [])
    # Goes on at once: a dead sweep's claims are nobody's.
    inline = lab.Inline()
    state = lab.sweep(inline)
    assert state.is_whole
    assert state.before == len(done)
    assert len(inline.seen) == lab.CELLS - len(done)
    assert lab.by_name() == expected


@pytest.mark.slow
def test_two_sweeps_on_one_store_share_the_work(lab, expected):
    """Each is seen in a run of its own; both end with everything done, and every run was done once in all."""
    store = lab.store()
    part = lab.recipe.only(methods=["ga"], forget=[ForgetSpec(classes=(0,))])
    before = Sweep(cells_of(part, lab.setting), store, lab.Inline()).run().done
    store.close()
    started = len(lab.pids())
    hold = lab.hold_after(started)
    sweeps = [lab.cli("--json", "--jobs", "1") for _ in range(2)]
    lab.wait_for(lambda: len(lab.pids()) == started + 2 or any(sweep.poll() is not None for sweep in sweeps))
    owners = {parent_of(pid) for pid in lab.pids()[started:]}
    assert owners == {sweep.pid for sweep in sweeps}
    hold.unlink()
    ends = [sweep.communicate(timeout=PATIENCE) for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], ends
    for out, _ in ends:
        state = json.loads(out)["state"]
        assert (state["done"], state["before"], state["failed"]) == (lab.CELLS, before, 0)
    assert len(lab.pids()) == lab.COPIES
    assert lab.by_name() == expected
    assert lab.claims() == 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room for a byte."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_is_lost(lab, expected, small_disk):
    lab.store_folder = small_disk / "store"
    ballast = small_disk / "ballast"
    hold = lab.hold_after(4)
    process = lab.cli()
    lab.wait_for(lambda: len(lab.pids()) >= 6 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    fill(ballast)
    hold.unlink()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    full = "gradpivot: the disk is full; free some space and run the same command to continue\n"
    assert told(err) == full
    ballast.unlink()
    done = lab.scores()
    assert 0 < len(done) < lab.CELLS
    state = lab.sweep()
    assert state.is_whole
    assert state.before == len(done)
    assert state.damaged == []
    assert lab.by_name() == expected


@pytest.mark.slow
def test_workers_find_a_method_by_its_import_path(lab):
    """In a module of its own that the problem's does not import."""
    own = "from gradpivot.methods import GA\n\n\nclass Mine(GA):\n    pass\n"
    (lab.folder / f"own_{lab.module}.py").write_text(own)
    method = f"own_{lab.module}:Mine"
    lab.path.write_text(
        lab.path.read_text().replace("CUP: {method: cup, gamma: [0.2, 0.8]}", f"Mine: {{method: '{method}'}}")
    )
    process = lab.cli("--classes", "0", "--methods", f"{method},GA", "--jobs", "1")
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    runs = {r.series: r for r in lab.store().records() if r.role == "run"}
    assert runs["Mine"].method == runs["Mine"].point.settings["method"] == method
    assert runs["Mine"].point.scores == runs["GA"].point.scores
