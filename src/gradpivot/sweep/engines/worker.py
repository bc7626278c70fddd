"""A worker process of the local engine: ``python -m gradpivot.sweep.engines.worker``. Internal.

It connects to the engine that started it, runs one job after another, and exits with the engine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from gradpivot.sweep.engines.job import Job, Pace, perform

__all__ = ["main"]

_REPORT_SECONDS = 1.0


def main(arguments: list[str]) -> None:
    """Serve the engine over an inherited pipe (arguments: file descriptor, engine's pid) until it closes."""
    descriptor, parent = map(int, arguments)
    # Ctrl-C reaches all processes of the terminal; the engine stops its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _exit_with(parent)
    with Connection(descriptor) as engine:
        serve(engine)


def serve(engine: Connection[Any, Any]) -> None:
    """Receive jobs and send answers."""
    while True:
        try:
            job: Job = engine.recv()
        except (EOFError, OSError):
            return
        judge = job.judge.read_bytes if job.judge is not None else None
        engine.send(perform(job, job.original.read_bytes, _Reporting(engine), judge))


class _Reporting:
    """Reports the job's progress to the engine, at most once a second."""

    def __init__(self, engine: Connection[Any, Any]) -> None:
        self._engine = engine
        self._started = self._reported = time.monotonic()
        self._first: float | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            # Loading, before the first report, is not part of the pace.
            self._first, self._started = done / max(total, 1), now
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            # The watcher thread notices a dead engine.
            with contextlib.suppress(OSError):
                self._engine.send(Pace(self._first, done / max(total, 1), now - self._started))


def _exit_with(parent: int) -> None:
    """Exit when the engine's process is gone, even in the middle of a run."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
