"""A progress bar with the time left, on standard error, so that ``--json`` output stays clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar", "bar_below_lines"]


@contextmanager
def bar(title: str, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar for the block; call what it gives with (done, in all), in bytes if that is what is counted."""
    with bar_below_lines(title, in_bytes) as (report, _):
        yield report


@contextmanager
def bar_below_lines(
    title: str, in_bytes: bool = False
) -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """The same, and a function that writes a line above the bar, to stay."""
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
