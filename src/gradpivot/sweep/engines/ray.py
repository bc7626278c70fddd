"""The cluster engine: every job a Ray task (extra ``ray``). No torch in this process.

Ray schedules, places and notices what dies; the sweep decides what is tried again. Only the sweep's own process writes
to the store, so the nodes need not see it.
"""

from __future__ import annotations

import logging
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError, to_install
from gradpivot.sweep.engines.job import Answer, Job, JobOutcome, Pace, Resources, perform

__all__ = ["RayEngine", "start"]

_LOOK_AT_CLUSTER = 5.0
"""Seconds between two looks at how large the cluster is: nodes come and go."""
_KNOCK_SECONDS = 10.0


def start(resources: Resources) -> RayEngine:
    """Connect to the cluster."""
    return RayEngine(resources.address, cpus=resources.cpus, gpus=resources.gpus)


class RayEngine:
    """Runs jobs on an existing Ray cluster.

    Args:
        address: ``auto``, or the head's ``host:port``.
        cpus: CPUs set aside for each job.
        gpus: GPUs set aside for each job; a fraction lets several share one.

    Raises:
        GradPivotError: if Ray is not installed, or there is no cluster.
    """

    def __init__(self, address: str = "auto", *, cpus: float = 1.0, gpus: float = 0.0) -> None:
        if cpus <= 0 or gpus < 0:
            raise GradPivotError(f"--cpus is {cpus} and --gpus {gpus}; a run needs some CPU, and GPUs from 0 up")
        self._ray = _connected(address)
        self._needs = {"CPU": cpus, "GPU": gpus}
        # Retries are the sweep's business: it counts them, and does not repeat what fails by itself.
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_performed)
        self._running: dict[Any, Job] = {}
        self._weights: dict[Path, Any] = {}
        self._capacity, self._looked = 0, -_LOOK_AT_CLUSTER

    def workers(self) -> int:
        """How many jobs the cluster can run at once, as it is now; 1 when it is empty, so that jobs wait there."""
        if time.monotonic() - self._looked > _LOOK_AT_CLUSTER:
            # By node: a job does not run on half of one and half of another.
            self._capacity = sum(
                min(int(node["Resources"].get(name, 0) / need) for name, need in self._needs.items() if need)
                for node in self._ray.nodes()
                if node["Alive"]
            )
            self._looked = time.monotonic()
        return max(1, self._capacity)

    def slots(self) -> int:
        """Twice as many as can run: while one's result travels, the next one runs."""
        return 2 * self.workers()

    def submit(self, job: Job) -> None:
        """Hand the job to the cluster."""
        self._running[self._task.remote(job, self._references(job), str(Path.cwd()))] = job

    def wait(self, seconds: float) -> list[JobOutcome]:
        """What has ended since the last call."""
        if not self._running:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        # One wakes us; take whatever else is there by now.
        if ready:
            everything = list(self._running)
            ready, _ = self._ray.wait(everything, num_returns=len(everything), timeout=0)
        return [self._outcome(reference) for reference in ready]

    def under_way(self) -> dict[str, Pace]:
        """Nothing is known of a task before it ends."""
        return {}

    def close(self) -> None:
        """Cancel what runs and leave the cluster, which goes on without us."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        self._ray.shutdown()

    def _references(self, job: Job) -> list[Any]:
        """The original's and the judge's weights in the cluster's object store: sent to a node when it first asks."""
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
            # A node's death is at times told as its worker's.
            self._looked = -_LOOK_AT_CLUSTER
            return JobOutcome(job=job, lost=_first_line(gone))
        except lost.RayError as wrong:
            # Such as a node without gradpivot: a traceback whose last line says what is wrong.
            return JobOutcome(job=job, error=_lines(wrong)[-1], fatal=True)


def _performed(job: Job, weights: list[Any], where: str) -> Answer:
    """The task itself, on some node. ``weights`` are in a list, so that Ray fetches each only when it is asked for."""
    import ray

    # People's own problems are looked for where they stand, if this node has that folder.
    if where not in sys.path:
        sys.path.insert(0, where)
    original, judge = (partial(ray.get, one) for one in (*weights, None, None)[:2])
    return perform(job, original, judge=judge)


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise GradPivotError(f"--engine ray needs Ray: {to_install('ray')}") from None
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise GradPivotError(
            f"there is no Ray cluster at {address!r} ({_first_line(error)}); start one with 'ray start --head', "
            f"or leave out --engine ray"
        ) from None
    return ray


def _knock(address: str) -> None:
    """Raise OSError if nothing listens there: Ray itself would go on trying for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()


def _first_line(error: Exception) -> str:
    return _lines(error)[0]


def _lines(error: Exception) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
