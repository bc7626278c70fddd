"""The cluster engine: every job is a Ray task (extra ``ray``). No torch in this process.

Ray schedules jobs and detects dead workers; the sweep decides on retries. Only the sweep's own process writes to the
store, so nodes need no access to it.
"""

from __future__ import annotations

import logging
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError, install_command
from gradpivot.sweep.engines.job import Answer, Job, JobOutcome, Pace, Resources, perform

__all__ = ["RayEngine", "start"]

_CAPACITY_SECONDS = 5.0
"""Seconds between two queries of the cluster's size, which may change."""
_CONNECT_SECONDS = 10.0


def start(resources: Resources) -> RayEngine:
    """Connect to the cluster."""
    return RayEngine(resources.address, cpus=resources.cpus, gpus=resources.gpus)


class RayEngine:
    """Runs jobs on an existing Ray cluster.

    Args:
        address: ``auto``, or ``host:port`` of the head node.
        cpus: CPUs reserved per job.
        gpus: GPUs reserved per job; a fraction lets several jobs share one.

    Raises:
        GradPivotError: If Ray is not installed, or there is no cluster.
    """

    def __init__(self, address: str = "auto", *, cpus: float = 1.0, gpus: float = 0.0) -> None:
        if cpus <= 0 or gpus < 0:
            raise GradPivotError(f"--cpus is {cpus} and --gpus is {gpus}; --cpus must be above 0 and --gpus at least 0")
        self._ray = _connect(address)
        self._needs = {"CPU": cpus, "GPU": gpus}
        # No retries by Ray: the sweep counts them and does not repeat runs that fail by themselves.
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_run_job)
        self._running: dict[Any, Job] = {}
        self._weights: dict[Path, Any] = {}
        self._capacity, self._capacity_checked = 0, -_CAPACITY_SECONDS

    def workers(self) -> int:
        """Number of jobs the cluster can run at once now; 1 if it is empty, so that jobs queue there."""
        if time.monotonic() - self._capacity_checked > _CAPACITY_SECONDS:
            # Per node: a job cannot span two nodes.
            self._capacity = sum(
                min(int(node["Resources"].get(name, 0) / need) for name, need in self._needs.items() if need)
                for node in self._ray.nodes()
                if node["Alive"]
            )
            self._capacity_checked = time.monotonic()
        return max(1, self._capacity)

    def slots(self) -> int:
        """Twice the number of workers, so that the next job runs while a result is transferred."""
        return 2 * self.workers()

    def submit(self, job: Job) -> None:
        """Submit the job to the cluster."""
        folder = str(Path.cwd())
        # Searched here only if the problem is in it.
        searched = folder if folder in sys.path else None
        self._running[self._task.remote(job, self._references(job), searched)] = job

    def wait(self, seconds: float) -> list[JobOutcome]:
        """Jobs finished since the last call."""
        if not self._running:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        # One finished job wakes us; collect all others that are finished by now.
        if ready:
            everything = list(self._running)
            ready, _ = self._ray.wait(everything, num_returns=len(everything), timeout=0)
        return [self._outcome(reference) for reference in ready]

    def under_way(self) -> dict[str, Pace]:
        """Empty: Ray tasks report no progress."""
        return {}

    def close(self) -> None:
        """Cancel running jobs and disconnect from the cluster."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        self._ray.shutdown()

    def _references(self, job: Job) -> list[Any]:
        """References to the original's and judge's weights in Ray's object store, fetched by nodes on demand."""
        files = [] if job.cell is None else [job.original, *([job.judge] if job.judge else [])]
        for file in files:
            if file not in self._weights:
                self._weights[file] = self._ray.put(file.read_bytes())
        return [self._weights[file] for file in files]

    def _outcome(self, reference: Any) -> JobOutcome:
        job = self._running.pop(reference)
        lost = self._ray.exceptions
        try:
            answer: Answer = self._ray.get(reference)
            return JobOutcome(job=job, **answer._asdict())
        except (lost.NodeDiedError, lost.ObjectLostError, lost.OwnerDiedError) as gone:
            return JobOutcome(job=job, lost=_first_line(gone), blameless=True)
        except (lost.WorkerCrashedError, lost.OutOfMemoryError, lost.TaskCancelledError) as gone:
            # Ray sometimes reports a dead node as a dead worker.
            self._capacity_checked = -_CAPACITY_SECONDS
            return JobOutcome(job=job, lost=_first_line(gone))
        except lost.RayError as wrong:
            # For example a node without gradpivot; the last line of the traceback has the reason.
            return JobOutcome(job=job, error=_lines(wrong)[-1], fatal=True)


def _run_job(job: Job, weights: list[Any], folder: str | None) -> Answer:
    """The Ray task. ``weights`` is a list, so that Ray does not fetch the references before they are used."""
    import ray

    # Find the user's own modules in the driver's working directory, if this node has it.
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    original, judge = (partial(ray.get, one) for one in (*weights, None, None)[:2])
    return perform(job, original, judge=judge)


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise GradPivotError(f"--engine ray needs Ray: {install_command('ray')}") from None
    try:
        _check_address(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise GradPivotError(
            f"there is no Ray cluster at {address!r} ({_first_line(error)}); start one with 'ray start --head', "
            f"or leave out --engine ray"
        ) from None
    return ray


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens at the address; Ray itself would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


def _first_line(error: Exception) -> str:
    return _lines(error)[0]


def _lines(error: Exception) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
