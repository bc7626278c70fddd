"""The default engine: worker processes on this machine, each with its own threads. No torch in this process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError, check_parallel
from gradpivot.sweep.engines.job import Answer, Job, JobOutcome, Pace, Resources

__all__ = ["LocalEngine", "start"]

_QUEUED = 1
"""Jobs queued per worker, so that it never idles."""
_MAX_SILENT_DEATHS = 10
"""Workers that may die without a single answer before the engine gives up."""


def start(resources: Resources) -> LocalEngine:
    """Start ``resources.jobs`` workers, one per core by default."""
    jobs = resources.jobs if resources.jobs is not None else os.cpu_count() or 1
    return LocalEngine(jobs, resources.threads, resources.log)


class LocalEngine:
    """Runs jobs in worker processes; replaces a dead worker and reports its job as lost.

    Args:
        jobs: Number of workers.
        threads: Threads per worker.
        log: File for the workers' output.
    """

    def __init__(self, jobs: int, threads: int, log: Path) -> None:
        if os.name != "posix":
            raise GradPivotError("sweeps run on Linux and macOS; on Windows use WSL, or a Ray cluster")
        check_parallel("--jobs", jobs)
        self._jobs, self._threads, self._log = jobs, threads, log
        self._deaths, self._answered = 0, False
        self._workers: list[_Worker] = []

    def slots(self) -> int:
        """One running and one queued job per worker."""
        return self._jobs * (1 + _QUEUED)

    def workers(self) -> int:
        """Number of worker processes."""
        return self._jobs

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [w.process.pid for w in self._workers]

    def submit(self, job: Job) -> None:
        """Give the job to the worker with the shortest queue; the first job starts the workers."""
        if not self._workers:
            self._workers = [self._start() for _ in range(self._jobs)]
        min(self._workers, key=lambda w: len(w.queue)).give(job)

    def wait(self, seconds: float) -> list[JobOutcome]:
        """Jobs finished since the last call."""
        ready = wait([w.connection for w in self._workers], timeout=seconds)
        outcomes: list[JobOutcome] = []
        for index, worker in enumerate(self._workers):
            if worker.connection in ready:
                try:
                    message: Answer | Pace = worker.connection.recv()
                    self._answered = True
                    if isinstance(message, Pace):
                        worker.pace = message
                    else:
                        outcomes.append(JobOutcome(job=worker.done(), **message._asdict()))
                except (EOFError, OSError):
                    outcomes += self._replace(index)
        return outcomes

    def under_way(self) -> dict[str, Pace]:
        """Progress of the running jobs."""
        return {w.queue[0].key: w.pace for w in self._workers if w.queue and w.pace is not None}

    def close(self) -> None:
        """Kill the workers; the next sweep repeats their jobs."""
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _replace(self, index: int) -> list[JobOutcome]:
        """Replace a dead worker; its queued jobs move to the new one, its running job is lost."""
        dead = self._workers[index]
        dead.stop()
        how = dead.process.returncode
        self._deaths += 1
        if not self._answered and self._deaths > _MAX_SILENT_DEATHS:
            raise GradPivotError(f"worker processes keep dying; see their output in {self._log}")
        self._workers[index] = self._start()
        outcomes = []
        if dead.queue:
            why = f"its worker was killed by signal {-how}" if how and how < 0 else f"its worker exited with code {how}"
            outcomes.append(JobOutcome(job=dead.queue.popleft(), lost=why))
        for job in dead.queue:
            self._workers[index].give(job)
        return outcomes

    def _start(self) -> _Worker:
        mine, its = Pipe()
        threads = {name: str(self._threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with its, self._log.open("ab") as log:
            # -P: without the current folder on the path; a job's own module is found as in this process.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gradpivot.sweep.engines.worker", str(its.fileno()), str(os.getpid())],
                env=os.environ | threads,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return _Worker(process, mine)


class _Worker:
    """A worker process, its connection and its queue of jobs."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
        self.process, self.connection = process, connection
        self.queue: deque[Job] = deque()
        self.pace: Pace | None = None

    def done(self) -> Job:
        """Remove the running job from the queue."""
        self.pace = None
        return self.queue.popleft()

    def give(self, job: Job) -> None:
        """Append a job to the queue; a broken connection is noticed on the next read."""
        self.queue.append(job)
        with contextlib.suppress(OSError):
            self.connection.send(job)

    def stop(self) -> None:
        """Kill the process and collect its exit code."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
