"""A worker process of the local engine: ``python -m gradpivot.sweep.engines.worker``. Not for people.

It connects to the engine that started it, does one job after the other, and ends with the engine, however that ends.
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


def main(words: list[str]) -> None:
    """Serve the engine at the other end of an inherited line (its number, the engine's process) until it hangs up."""
    line, parent = map(int, words)
    # Ctrl-C goes to everybody at the terminal; the engine decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(parent)
    with Connection(line) as engine:
        serve(engine)


def serve(engine: Connection[Any, Any]) -> None:
    """Jobs in, answers out."""
    while True:
        try:
            job: Job = engine.recv()
        except (EOFError, OSError):
            return
        judge = job.judge.read_bytes if job.judge is not None else None
        engine.send(perform(job, job.original.read_bytes, _Reporting(engine), judge))


class _Reporting:
    """Tells the engine how far the job is, once a second at most: a step may take a millisecond."""

    def __init__(self, engine: Connection[Any, Any]) -> None:
        self._engine = engine
        self._started = self._told = time.monotonic()
        self._first: float | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            # What came before the first report, loading and the like, is not part of the pace.
            self._first, self._started = done / max(total, 1), now
        if now - self._told >= _REPORT_SECONDS:
            self._told = now
            # An engine that is gone is noticed elsewhere.
            with contextlib.suppress(OSError):
                self._engine.send(Pace(self._first, done / max(total, 1), now - self._started))


def _end_with(parent: int) -> None:
    """End this process when the engine's is gone, even in the middle of a run of hours."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
