"""Jobs, their outcomes, and the interface of engines. No torch."""

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

_MAX_ERROR_LENGTH = 400
"""Maximum length of a reported error; the log has the full text."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job for a worker: train an original (or judge) model, or run a cell.

    Attributes:
        key: Key in the store.
        setting: Problem, versions, threads.
        seed: Seed of the original.
        cell: The cell to run; None to train the original.
        original: File with the original's weights.
        judge: File with the weights of the classifier that judges a generator's samples, or None.
        target: The world to train a shadow model for; None for any other original.
        block: Cells of the worlds to train together instead, each with whether its shadow model or its reference is
            wanted (:mod:`gradpivot.sweep.ahead`).
        checkpoint: Checkpoint file of a long run.
        store: Folder and id of the store; a worker on another machine may not have access to it.
    """

    key: str
    setting: Setting
    seed: int
    cell: Cell | None
    original: Path
    checkpoint: Path
    store: tuple[Path, str]
    judge: Path | None = None
    target: Mapping[str, Any] | None = None
    block: tuple[tuple[Cell, bool], ...] = ()

    @property
    def title(self) -> str:
        """Readable description."""
        if self.cell is None:
            shadow = "" if self.target is None else f" of world {self.target['world']}"
            return f"original model{shadow}, seed {self.seed}"
        settings = ", ".join(f"{name}={value}" for name, value in _searched_settings(self.cell.method).items())
        label = f" ({settings})" if settings else ""
        return f"{self.cell.series}{label}, {self.cell.target['kind']} {self.cell.forget}, seed {self.seed}"


def _searched_settings(method: Mapping[str, Any]) -> dict[str, Any]:
    from gradpivot.methods import make_method

    if not method:
        return {}
    chosen = make_method(method)
    space = [name for name in type(chosen).paper_space if name != chosen.knob]
    names = [*space, *([chosen.active_knob] if chosen.active_knob else [])]
    return {name: method[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """Outcome of a job.

    Attributes:
        job: The job.
        value: Record of a run, weights of an original, or a trained block; None on failure.
        error: Error message; a retry would fail again.
        fatal: Whether the worker itself is at fault (wrong versions or data), so that every job fails there.
        lost: Why the worker died; a retry may succeed.
        blameless: Whether more than its own worker died, so that the job is not the cause.
        seconds: Duration.
    """

    job: Job
    value: Record | bytes | None = None
    error: str | None = None
    fatal: bool = False
    lost: str | None = None
    blameless: bool = False
    seconds: float = 0.0


class Pace(NamedTuple):
    """Progress of a running job.

    Attributes:
        first: Fraction of steps done at the start, above 0 for a resumed run.
        share: Fraction of steps done now.
        seconds: Seconds since the start.
    """

    first: float
    share: float
    seconds: float

    @property
    def whole(self) -> float | None:
        """Estimated total seconds, or None before the first step."""
        return self.seconds / (self.share - self.first) if self.share > self.first else None

    @property
    def left(self) -> float | None:
        """Estimated remaining seconds."""
        return None if self.whole is None else self.whole * (1 - self.share)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources for an engine; each engine uses those it supports.

    Attributes:
        jobs: Number of parallel runs; the number of cores if None.
        threads: Threads per run.
        cpus: CPUs reserved per run.
        gpus: GPUs reserved per run.
        address: Address of the cluster.
        log: File for the workers' output.
    """

    log: Path
    jobs: int | None = None
    threads: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    address: str = "auto"


class Engine(Protocol):
    """Runs jobs. Results do not depend on the engine, the number of workers or the order."""

    def slots(self) -> int:
        """Number of jobs to keep submitted: the running ones and one queued per worker."""
        ...

    def workers(self) -> int:
        """Number of jobs that can run at once."""
        ...

    def submit(self, job: Job) -> None:
        """Accept a job."""
        ...

    def wait(self, seconds: float) -> list[JobOutcome]:
        """Jobs finished since the last call; waits up to ``seconds`` for one."""
        ...

    def under_way(self) -> Mapping[str, Pace]:
        """Progress of the running jobs by key, where known."""
        ...

    def close(self) -> None:
        """Stop immediately, killing running jobs."""
        ...


class Answer(NamedTuple):
    """A worker's reply, with fields of :class:`JobOutcome`."""

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
    """Run a job in this process and time it. Exceptions from users' models and data become one-line errors.

    Args:
        job: The job.
        weights: Returns the original's weights; called only if they are not cached.
        report: Called with (finished steps, total steps) after every step.
        judge: Returns the judge's weights, if there is a judge.
    """
    from gradpivot.sweep import ahead, work

    started = time.perf_counter()
    value: Record | bytes | None = None
    error, checked = None, False
    try:
        work.check_setting(job.setting)
        checked = True
        seen = _sees_store(job)
        checkpoint = job.checkpoint if seen else None
        if job.block:
            value = ahead.train_block(job.block)
        elif job.cell is None:
            value = work.original_weights(job.setting, job.seed, report, checkpoint, job.target)
        else:
            value = work.run_cell(job.cell, weights, checkpoint, report, judge, job.store[0] / "real" if seen else None)
    except GradPivotError as wrong:
        error = str(wrong)
    except Exception as wrong:
        if type(wrong).__module__.startswith("ray."):
            raise  # A problem of the cluster, not of the run: the engine handles it.
        # A user's model or data raised: the traceback goes to the log, one line to the sweep.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        error = textwrap.shorten(f"{type(wrong).__name__}: {wrong}", _MAX_ERROR_LENGTH, placeholder=" …")
    return Answer(value, error, error is not None and not checked, time.perf_counter() - started)


def _sees_store(job: Job) -> bool:
    """Whether this process has access to the sweep's store."""
    folder, identity = job.store
    try:
        return bool(json.loads((folder / "store.json").read_text(encoding="utf-8"))["id"] == identity)
    except (OSError, ValueError, KeyError, TypeError):
        return False
