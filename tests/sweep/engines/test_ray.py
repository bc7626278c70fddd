"""On a real cluster of two Ray nodes on this machine; whatever dies, the records are those of a plain loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.sweep.engines import ray as ray_engine
from gradpivot.sweep.engines.job import JobOutcome
from gradpivot.sweep.engines.ray import RayEngine
from gradpivot.sweep.sweeping import Sweep

pytest.importorskip("ray", reason="Ray is not installed (the extra 'ray')")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    quiet = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}
    # The head runs nothing, so that a node that is killed is never the one this process is connected to.
    made = Cluster(initialize_head=True, head_node_args={**quiet, "num_cpus": 0})
    made.second = made.add_node(num_cpus=1, object_store_memory=100_000_000)
    made.add_node(num_cpus=1, object_store_memory=100_000_000)
    made.wait_for_nodes(timeout=120)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def connection(cluster):
    """One for all tests: workers live as long as it does, and each imports torch once."""
    made = RayEngine(cluster.address)
    yield made
    made.close()


@pytest.fixture
def engine(connection):
    yield connection
    while connection._running:
        connection.wait(1)


def test_an_address_with_no_cluster_is_one_line():
    with pytest.raises(GradPivotError, match=r"there is no Ray cluster at '127.0.0.1:1' \(.*refused.*ray start --head"):
        RayEngine("127.0.0.1:1")


def test_what_a_run_needs_is_checked():
    with pytest.raises(GradPivotError, match="--cpus is 0"):
        RayEngine("auto", cpus=0)
    with pytest.raises(GradPivotError, match="--gpus is -1"):
        RayEngine("auto", gpus=-1)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GradPivotError, match=r"-e '.\[ray\]'"):
        RayEngine("auto")


def test_errors_are_told_by_their_last_line():
    error = RuntimeError("ray::f() (pid=1)\n  File x\nModuleNotFoundError: no module named 'gradpivot'\n")
    assert ray_engine._lines(error)[-1] == "ModuleNotFoundError: no module named 'gradpivot'"
    assert ray_engine._first_line(RuntimeError("")) == "RuntimeError"


@pytest.mark.slow
def test_an_error_of_the_users_is_an_error_and_no_loss(lab, engine):
    lab.say("raise")
    assert engine.workers() == 2
    assert engine.slots() == 4
    seen: list[JobOutcome] = []

    class Watched:
        slots, workers, close, under_way = engine.slots, engine.workers, engine.close, engine.under_way

        submit = staticmethod(engine.submit)

        def wait(self, seconds):
            some = engine.wait(seconds)
            seen.extend(some)
            return some

    store = lab.store()
    state = Sweep(lab.cells, store, Watched()).run()
    assert (state.done, state.failed) == (lab.CELLS - 3, 3)
    assert {why for _, _, why in store.failures()} == {"RuntimeError: my loss is broken"}
    assert not [outcome for outcome in seen if outcome.lost]
    store.close()


@pytest.mark.slow
def test_a_node_of_other_versions_stops_the_sweep(lab, engine):
    """Such a node is always free, and would draw every run to itself."""

    class Foreign:
        slots, workers, wait, close = engine.slots, engine.workers, engine.wait, engine.close
        under_way = engine.under_way

        def submit(self, job):
            wrong = replace(job.setting, versions={"gradpivot": "0.0", "torch": "1"})
            engine.submit(replace(job, setting=wrong))

    with pytest.raises(GradPivotError, match="install the same versions on all nodes"):
        lab.sweep(Foreign())


@pytest.mark.slow
def test_a_worker_and_then_a_node_are_killed_and_nothing_is_lost(lab, expected, cluster, engine):
    """Held in the fourth run, its worker is killed by -9; held again in the seventh, a node is taken away."""
    hold = lab.hold_after(3)
    steps: list[str] = []

    def watch(_):
        if not steps and len(lab.pids()) >= 4:
            os.kill(lab.pids()[3], signal.SIGKILL)
            steps.append("worker")
            lab.hold_after(6)
        elif steps == ["worker"] and len(lab.pids()) >= 8:
            cluster.remove_node(cluster.second, allow_graceful=False)
            steps.append("node")
        # Its worker must be gone before it can finish what it does.
        elif steps == ["worker", "node"] and not all(map(lab.is_running, lab.pids()[6:8])):
            steps.append("gone")
            hold.unlink()

    store = lab.store()
    state = Sweep(lab.cells, store, engine).run(watch)
    store.close()
    assert steps == ["worker", "node", "gone"]
    assert state.is_whole
    assert state.failed == 0
    assert state.busy <= 1
    assert lab.by_name() == expected
    # One run was lost with its worker and one with its node.
    assert len(lab.pids()) == lab.COPIES + 2
    cluster.second = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)


@pytest.mark.slow
def test_the_command_line_sweeps_on_a_cluster(lab, expected, cluster):
    command = [sys.executable, "-m", "gradpivot", "sweep", str(lab.path), "--store", str(lab.store_folder)]
    done = subprocess.run(
        [*command, "--engine", "ray", "--address", cluster.address],
        cwd=lab.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{lab.CELLS} of {lab.CELLS} runs are in" in done.stdout
    assert lab.by_name() == expected
    assert lab.claims() == 0
