"""The progress bar of the verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradpivot.loop import Progress
from gradpivot.runtime import Replicas

__all__ = ["shown_progress"]


@contextmanager
def shown_progress(wanted: bool | Progress, title: str) -> Iterator[Progress | None]:
    """A rich progress bar, the caller's own function, or nothing."""
    if not isinstance(wanted, bool):
        yield wanted
        return
    if not wanted or not Replicas.current().is_first:
        yield None
        return
    from gradpivot.runtime import bar

    with bar(title) as report:
        yield report
