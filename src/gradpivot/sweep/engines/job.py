"""Jobs and engines: what a sweep asks for, and what any engine must do with it. No torch."""

from __future__ import annotations

import contextlib
import json
import textwrap
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gradpivot.errors import GradPivotError
from gradpivot.results import Record
from gradpivot.sweep.cell import Cell, Setting

__all__ = ["Answer", "Engine", "Job", "JobOutcome", "Pace", "Resources", "perform"]

_LONGEST = 400
"""Characters of somebody's error that are told; the log has all of it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Something for a worker: train an original model (or the one that judges), or run a cell.

    Attributes:
        key: Its identity in the store.
        setting: Problem, versions, threads.
        seed: Of the original.
        cell: What to run; None to train the original.
        original: The file with the original's weights.
        judge: The file with the weights of the classifier that judges a generator's samples; None without one.
        checkpoint: Where a long run keeps its resumable state.
        store: The store's folder and identity: a worker on another machine may not see it.
    """

    key: str
    setting: Setting
    seed: int
    cell: Cell | None
    original: Path
    checkpoint: Path
    store: tuple[Path, str]
    judge: Path | None = None

    @property
    def title(self) -> str:
        """What it is, for people."""
        if self.cell is None:
            return f"original model, seed {self.seed}"
        told = ", ".join(f"{name}={value}" for name, value in _telling(self.cell.method).items())
        label = f" ({told})" if told else ""
        what = "class" if self.cell.target["kind"] == "class" else "random"
        return f"{self.cell.series}{label}, {what} {self.cell.forget}, seed {self.seed}"


def _telling(method: Mapping[str, Any]) -> dict[str, Any]:
    from gradpivot.methods import make_method

    if not method:
        return {}
    chosen = make_method(method)
    space = [name for name in type(chosen).paper_space if name != chosen.knob]
    names = [*space, *([chosen.walked] if chosen.walked else [])]
    return {name: method[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """What became of a job.

    Attributes:
        job: The job.
        value: The record of a run, or the weights of an original; None if there is none.
        error: Why it failed: the same would happen again.
        fatal: Whether the worker itself is wrong (other versions, other data), so that every job would fail there.
        lost: Why its worker went away: it may well work the next time.
        blameless: Whether it was lost with more than its own worker, so that it cannot be the cause.
        seconds: How long it took.
    """

    job: Job
    value: Record | bytes | None = None
    error: str | None = None
    fatal: bool = False
    lost: str | None = None
    blameless: bool = False
    seconds: float = 0.0


class Pace(NamedTuple):
    """How far a job under way has come.

    Attributes:
        first: The share of its steps that was done when it began, more than 0 if it was resumed.
        share: The share that is done now.
        seconds: Since it began.
    """

    first: float
    share: float
    seconds: float

    @property
    def whole(self) -> float | None:
        """How long all of it takes at this pace, or None before the first step."""
        return self.seconds / (self.share - self.first) if self.share > self.first else None

    @property
    def left(self) -> float | None:
        """How long the rest of it takes at this pace."""
        return None if self.whole is None else self.whole * (1 - self.share)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What an engine may use; each takes what it knows.

    Attributes:
        jobs: Runs at once; as many as there are cores if None.
        threads: Threads of each run.
        cpus: CPUs set aside for each run.
        gpus: GPUs set aside for each run.
        address: Where the cluster is.
        log: Where what workers print goes.
    """

    log: Path
    jobs: int | None = None
    threads: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    address: str = "auto"


class Engine(Protocol):
    """Somewhere to run jobs. Results do not depend on which, on how many workers, or on the order."""

    def slots(self) -> int:
        """How many jobs to keep submitted: those that can run at once, and one each that waits its turn."""
        ...

    def workers(self) -> int:
        """How many jobs can run at once."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job."""
        ...

    def wait(self, seconds: float) -> list[JobOutcome]:
        """What has ended since the last call, waiting up to ``seconds`` for something to end."""
        ...

    def under_way(self) -> Mapping[str, Pace]:
        """How far the running jobs have come, by key; those of which nothing is known are not in it."""
        ...

    def close(self) -> None:
        """Stop at once, whatever runs."""
        ...


class Answer(NamedTuple):
    """What a worker sends back; the fields are those of :class:`JobOutcome`."""

    value: Record | bytes | None
    error: str | None
    fatal: bool
    seconds: float


def perform(
    job: Job,
    weights: Callable[[], bytes],
    report: Callable[[int, int], None] | None = None,
    judge: Callable[[], bytes] | None = None,
) -> Answer:
    """Do a job in this process, and time it. What people's models and data raise becomes one line.

    Args:
        job: What to do.
        weights: Gives the original's weights; asked only when they are not at hand.
        report: Called with (steps done, steps in all) after every step.
        judge: Gives the weights of the classifier that judges, where there is one.
    """
    from gradpivot.sweep import work

    started = time.perf_counter()
    value: Record | bytes | None = None
    error, checked = None, False
    try:
        work.check_setting(job.setting)
        checked = True
        seen = _sees_store(job)
        checkpoint = job.checkpoint if seen else None
        if job.cell is None:
            value = work.original_weights(job.setting, job.seed, report, checkpoint)
        else:
            value = work.run_cell(job.cell, weights, checkpoint, report, judge, job.store[0] / "real" if seen else None)
    except GradPivotError as wrong:
        error = str(wrong)
    except Exception as wrong:
        if type(wrong).__module__.startswith("ray."):
            raise  # The cluster's trouble, not the run's: the engine knows what to make of it.
        # Somebody's model or data raised: the whole story goes to the log, one line to the sweep.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        error = textwrap.shorten(f"{type(wrong).__name__}: {wrong}", _LONGEST, placeholder=" …")
    return Answer(value, error, error is not None and not checked, time.perf_counter() - started)


def _sees_store(job: Job) -> bool:
    """Whether this process sees the store's folder, and it is the same one."""
    folder, identity = job.store
    try:
        return bool(json.loads((folder / "store.json").read_text(encoding="utf-8"))["id"] == identity)
    except (OSError, ValueError, KeyError, TypeError):
        return False
