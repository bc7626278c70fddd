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

from gradpivot.errors import GradPivotError
from gradpivot.sweep.engines.job import Answer, Job, JobOutcome, Pace, Resources

__all__ = ["LocalEngine", "start"]

_WAITING = 1
"""Jobs that wait in a worker's queue, so that it never waits for us."""
_MOST_SILENT_DEATHS = 10
"""After so many dead workers and never an answer, something is wrong with all of them."""


def start(resources: Resources) -> LocalEngine:
    """As many workers as were asked for, or as there are cores."""
    jobs = resources.jobs if resources.jobs is not None else os.cpu_count() or 1
    return LocalEngine(jobs, resources.threads, resources.log)


class LocalEngine:
    """Runs jobs in worker processes; one that dies is replaced, and its job reported as lost.

    Args:
        jobs: How many workers.
        threads: Threads of each.
        log: Where what the workers print goes.
    """

    def __init__(self, jobs: int, threads: int, log: Path) -> None:
        if os.name != "posix":
            raise GradPivotError("sweeps run on Linux and macOS; on Windows use WSL, or a Ray cluster")
        if jobs < 1:
            raise GradPivotError(f"--jobs is {jobs}; give 1 or more")
        self._jobs, self._threads, self._log = jobs, threads, log
        self._deaths, self._answered = 0, False
        self._workers: list[_Worker] = []

    def slots(self) -> int:
        """One job running and one waiting for each worker."""
        return self._jobs * (1 + _WAITING)

    def workers(self) -> int:
        """The number of worker processes."""
        return self._jobs

    @property
    def pids(self) -> list[int]:
        """The workers' process numbers."""
        return [w.process.pid for w in self._workers]

    def submit(self, job: Job) -> None:
        """Give the job to the worker with the shortest queue; they are started with the first job."""
        if not self._workers:
            self._workers = [self._start() for _ in range(self._jobs)]
        min(self._workers, key=lambda w: len(w.queue)).give(job)

    def wait(self, seconds: float) -> list[JobOutcome]:
        """What has ended since the last call."""
        ready = wait([w.connection for w in self._workers], timeout=seconds)
        outcomes: list[JobOutcome] = []
        for place, one in enumerate(self._workers):
            if one.connection in ready:
                try:
                    told: Answer | Pace = one.connection.recv()
                    self._answered = True
                    if isinstance(told, Pace):
                        one.pace = told
                    else:
                        outcomes.append(JobOutcome(job=one.done(), **told._asdict()))
                except (EOFError, OSError):
                    outcomes += self._replace(place)
        return outcomes

    def under_way(self) -> dict[str, Pace]:
        """How far the running jobs have come."""
        return {one.queue[0].key: one.pace for one in self._workers if one.queue and one.pace is not None}

    def close(self) -> None:
        """Kill the workers; what they were doing is done again the next time."""
        for one in self._workers:
            one.stop()
        self._workers = []

    def _replace(self, place: int) -> list[JobOutcome]:
        """A new worker for one that is gone; its queue goes to the new one, except what it was doing."""
        dead = self._workers[place]
        dead.stop()
        how = dead.process.returncode
        self._deaths += 1
        if not self._answered and self._deaths > _MOST_SILENT_DEATHS:
            raise GradPivotError(f"worker processes keep dying; what they said is in {self._log}")
        self._workers[place] = self._start()
        outcomes = []
        if dead.queue:
            why = f"its worker was killed by signal {-how}" if how and how < 0 else f"its worker ended with {how}"
            outcomes.append(JobOutcome(job=dead.queue.popleft(), lost=why))
        for job in dead.queue:
            self._workers[place].give(job)
        return outcomes

    def _start(self) -> _Worker:
        mine, its = Pipe()
        threads = {name: str(self._threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with its, self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gradpivot.sweep.engines.worker", str(its.fileno()), str(os.getpid())],
                env=os.environ | threads,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return _Worker(process, mine)


class _Worker:
    """One process, the line to it, and the jobs it has."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
        self.process, self.connection = process, connection
        self.queue: deque[Job] = deque()
        self.pace: Pace | None = None

    def done(self) -> Job:
        """Take the job it was doing off its queue."""
        self.pace = None
        return self.queue.popleft()

    def give(self, job: Job) -> None:
        """Put a job at the end of its queue; a line that is broken is noticed when it is read."""
        self.queue.append(job)
        with contextlib.suppress(OSError):
            self.connection.send(job)

    def stop(self) -> None:
        """End the process and know how it ended."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
