"""A tiny problem in a module of its own, whose runs can be watched, held, made to raise and made to die."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.experiments.recipes.recipe import Recipe
from gradpivot.sweep.cell import Cell, Setting, cells_of
from gradpivot.sweep.engines.job import Job, JobOutcome, Pace, perform
from gradpivot.sweep.store.store import Store
from gradpivot.sweep.sweeping import State, Sweep

PATIENCE = 120
"""Seconds: machines are busy."""

MODULE = '''
import copy, os, time
from pathlib import Path
from gradpivot.methods.retrain import Retrain
from gradpivot.experiments.problem import Problem
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import TinyNet, blobs

HERE = Path(__file__).parent

class Net(TinyNet):
    """Copied once by every run, and so by every training of an original: that is where a run is seen and held."""
    def __deepcopy__(self, memo):
        with (HERE / "runs.log").open("a") as log:
            log.write(f"{os.getpid()}\\n")
        try:
            number = len((HERE / "runs.log").read_text().split())
            while number > int((HERE / "hold").read_text()):
                time.sleep(0.01)
        except FileNotFoundError:
            pass
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

class Task(Classification):
    """Class 1 cannot be forgotten if somebody says so."""
    def forget_loss(self, model, batch, objective):
        if int(batch[1][0]) == 1:
            if (HERE / "raise").exists():
                raise RuntimeError("my loss\\nis broken")
            if (HERE / "die").exists():
                os.kill(os.getpid(), 9)
        return super().forget_loss(model, batch, objective)

def problem():
    return Problem(name="tiny", load=lambda: (blobs(20), blobs(20, seed=1)), model=Net, task=Task(),
                   training=Retrain(epochs=2, lr=0.1, batch_size=20))
'''

RECIPE = """
schema: gradpivot.recipe/1
problem: {module}:problem
forget: {{classes: 0-1}}
seeds: {seeds}
protocols:
  clean:
    settings: {{epochs: 1, batch_size: 10, lr: 0.01}}
    series:
      CUP: {{method: cup, gamma: [0.2, 0.8]}}
      GA: {{method: ga}}
"""
CELLS = 10
"""Runs of the recipe for one seed: two classes, each with original, reference and three runs."""
COPIES = 9
"""Lines in the runs' log for one seed: the original's training, and every run but the originals' scores."""


def wait_for(what: Callable[[], object], why: str = "it did not happen") -> None:
    """Poll, however busy the machine is."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class InlineEngine:
    """Runs jobs in this process, as they come, or the last one first."""

    def __init__(self, *, backwards: bool = False, slots: int = 4) -> None:
        self._queue: deque[Job] = deque()
        self._backwards, self._slots = backwards, slots
        self.seen: list[Job] = []

    def slots(self) -> int:
        return self._slots

    def workers(self) -> int:
        return 1

    def submit(self, job: Job) -> None:
        self._queue.append(job)

    def wait(self, seconds: float) -> list[JobOutcome]:
        if not self._queue:
            time.sleep(seconds)
            return []
        job = self._queue.pop() if self._backwards else self._queue.popleft()
        self.seen.append(job)
        judge = job.judge.read_bytes if job.judge else None
        return [JobOutcome(job=job, **perform(job, job.original.read_bytes, judge=judge)._asdict())]

    def under_way(self) -> dict[str, Pace]:
        return {}

    def close(self) -> None:
        self._queue.clear()


def start_inline(resources: object) -> InlineEngine:
    """The engine ``lab:start_inline``, for what takes an engine by name."""
    return InlineEngine()


class Lab:
    """A folder with the problem, its recipe and a store."""

    CELLS, COPIES, PATIENCE, Inline = CELLS, COPIES, PATIENCE, InlineEngine
    wait_for, is_running = staticmethod(wait_for), staticmethod(is_running)

    def __init__(self, folder: Path, seeds: int = 1) -> None:
        self.folder = folder
        # Of its own name: processes remember modules and problems by it.
        self.module = f"tiny_{uuid.uuid4().hex[:8]}"
        (folder / f"{self.module}.py").write_text(MODULE)
        self.path = folder / "recipe.yaml"
        self.path.write_text(RECIPE.format(module=self.module, seeds=seeds))
        self.store_folder = folder / "store"

    @property
    def recipe(self) -> Recipe:
        return load_recipe(self.path)

    @property
    def setting(self) -> Setting:
        from gradpivot.sweep.work import setting_of

        return setting_of(f"{self.module}:problem", 1, "cpu")

    @property
    def cells(self) -> list[Cell]:
        return cells_of(self.recipe, self.setting)

    def store(self) -> Store:
        return Store(self.store_folder, create=True)

    def sweep(self, engine: object | None = None, store: Store | None = None) -> State:
        store = store or self.store()
        try:
            return Sweep(self.cells, store, engine or InlineEngine()).run()
        finally:
            store.close()

    def pids(self) -> list[int]:
        """Which process did each run, in order."""
        try:
            return [int(line) for line in (self.folder / "runs.log").read_text().split()]
        except FileNotFoundError:
            return []

    def say(self, what: str, content: str = "") -> Path:
        path = self.folder / what
        path.write_text(content)
        return path

    def hold_after(self, runs: int) -> Path:
        """Let so many runs pass and hold the others until the file is deleted."""
        return self.say("hold", str(runs))

    def scores(self) -> dict[str, object]:
        store = self.store()
        found = {record.key: record.point.scores for record in store.records()}
        store.close()
        return found

    def by_name(self) -> dict[tuple[object, ...], object]:
        """The store's scores as ``expected`` has them."""
        store = self.store()
        found = {
            (r.series, r.forget, json.dumps(dict(r.point.settings), sort_keys=True)): r.point.scores
            for r in store.records()
        }
        store.close()
        return found

    def claims(self) -> int:
        """How many runs somebody has claimed, dead or alive."""
        with closing(sqlite3.connect(self.store_folder / "index.sqlite")) as index:
            return int(index.execute("SELECT count(*) FROM leases").fetchone()[0])

    def cli(self, *words: str, store: Path | None = None) -> subprocess.Popen[str]:
        """The sweep command in a process group of its own, as a terminal starts it."""
        command = [sys.executable, "-m", "gradpivot", "sweep", str(self.path), "--jobs", "2"]
        return subprocess.Popen(
            [*command, "--store", str(store or self.store_folder), *words],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Lab:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@pytest.fixture(scope="session")
def expected(tmp_path_factory) -> dict[tuple[object, ...], object]:
    """What a plain loop gives, run after run, with nothing of the sweep: by (series, forgotten, settings)."""
    from gradpivot.data.split import ForgetSplit
    from gradpivot.evaluate.classifiers.evaluation import evaluate
    from gradpivot.experiments.problem import find_problem
    from gradpivot.runs.original import train_original
    from gradpivot.runs.run import Running, run_method

    lab = Lab(tmp_path_factory.mktemp("plain"))
    sys.path.insert(0, str(lab.folder))
    try:
        problem = find_problem(f"{lab.module}:problem")
    finally:
        sys.path.remove(str(lab.folder))
    scores = {}
    for forgotten in (0, 1):
        split = ForgetSplit.by_class(*problem.load(), forgotten)
        original = train_original(problem, split, 0)
        scores["Original", str(forgotten), "{}"] = evaluate(original, split, problem.task)
        runs = {"Retrain": [problem.training]} | {s.name: list(s.methods) for s in lab.recipe.series}
        for name, methods in runs.items():
            for method in methods:
                result = run_method(original, split, method, Running(task=problem.task, factory=problem.model))
                told = json.dumps(method.to_dict(), sort_keys=True)
                scores[name, str(forgotten), told] = result.scores
    return scores
