"""Everything the command line says: results and tables on standard output, bars on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradpivot.run import Result

__all__ = ["bar", "percentages", "quiet", "say", "say_json", "say_result", "wants_bars"]


def wants_bars(as_json: bool) -> bool:
    """Whether somebody watches: not in a pipe, a log or a script."""
    return not as_json and sys.stderr.isatty()


@contextmanager
def bar(title: str, wanted: bool) -> Iterator[Any]:
    """A progress bar for the block, or None."""
    if not wanted:
        yield None
        return
    from gradpivot.progress import bar as progress_bar

    with progress_bar(title) as report:
        yield report


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a nested command's report off standard output."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def percentages(scores: dict[str, Any]) -> str:
    """The four scores in percent, in one line."""
    return ", ".join(f"{name.upper()} {100 * scores[name]:.2f} %" for name in ("ra", "ua", "ta", "mia"))


def say_result(result: Result, out: Path) -> None:
    """What a run gave and where it is."""
    if result.diverged:
        say(
            f"{result.method.label} diverged at step {result.diverged['step']}: {result.diverged['reason']}.",
            f"The last finite weights are in {out}. Lower lr, set max_norm, or use objective unlikelihood.",
        )
    else:
        say(
            result.method.label,
            f"{percentages(result.scores.to_dict())}; {result.seconds:.1f} s. Everything is in {out}",
        )


def say_json(text: str) -> None:
    """JSON on standard output, as it is."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say(*parts: Any) -> None:
    """Lines and tables on standard output."""
    from rich.console import Console

    console = Console(soft_wrap=False)
    for part in parts:
        console.print(part, highlight=False, markup=False)
