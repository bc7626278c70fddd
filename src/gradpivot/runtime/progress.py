"""Progress on standard error: a bar with the time left at a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["LOG_SECONDS", "LogLines", "bar", "bar_below_lines", "duration"]

LOG_SECONDS = 10.0
"""Between two lines of a log."""


@contextmanager
def bar(title: str, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Progress of the block; call what it yields with (done, total), in bytes if that is what is counted."""
    if not sys.stderr.isatty():
        yield LogLines(title, in_bytes=in_bytes)
        return
    with bar_below_lines(title, in_bytes) as (report, _):
        yield report


@contextmanager
def bar_below_lines(
    title: str, in_bytes: bool = False
) -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """A bar at a terminal, and a function that prints a line above it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def say(line: str) -> None:
            progress.console.print(line, highlight=False, markup=False)

        yield report, say


class LogLines:
    """Progress as lines of a log, at most one every ten seconds.

    Args:
        title: What is in progress.
        in_bytes: Whether bytes are counted.
        clock: Gives the time in seconds.
    """

    def __init__(self, title: str, *, in_bytes: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._in_bytes, self._clock = title, in_bytes, clock
        self._last = clock()
        self._first: tuple[int, float] | None = None
        self.left = ""
        """``, 3 min left``; empty while nothing is known."""

    def __call__(self, done: int, total: int) -> None:
        """Report progress."""
        now = self._clock()
        if self._first is None:
            self._first = done, now
        before, started = self._first
        if done > before:
            self.left = f", {duration((now - started) / (done - before) * (total - done))} left" if done < total else ""
        if now - self._last >= LOG_SECONDS:
            self._last = now
            count = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if self._in_bytes else f"{done}/{total}"
            sys.stderr.write(f"{self._title}: {count}{self.left}\n")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """Seconds as people say them: ``45 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
