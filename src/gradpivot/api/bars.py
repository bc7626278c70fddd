"""Progress bar of the main functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradpivot.loop import Progress
from gradpivot.runtime import Replicas

__all__ = ["show_progress"]


@contextmanager
def show_progress(wanted: bool | Progress, title: str) -> Iterator[Progress | None]:
    """Yield a progress bar, the caller's own callback, or None; only the first process shows a bar."""
    if not isinstance(wanted, bool):
        yield wanted
        return
    if not wanted or not Replicas.current().is_first:
        yield None
        return
    from gradpivot.runtime import bar

    with bar(title) as report:
        yield report
