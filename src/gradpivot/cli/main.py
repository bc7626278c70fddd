"""The entry point: parse options, run the command, turn errors into one line and an exit status."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from gradpivot import __version__
from gradpivot.cli.streams import prepare_streams
from gradpivot.cli.torchrun import is_first, launched, let_others_speak, may_speak
from gradpivot.errors import GradPivotError

__all__ = ["main"]

INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 on success, 1 for an error, 2 for a usage error, 3 for a diverged run, 4 for one that ended short of
        its degree or conditions, 130 after Ctrl-C.
    """
    prepare_streams()
    try:
        return _run(list(sys.argv[1:] if words is None else words))
    finally:
        _flush()


def _run(words: list[str]) -> int:
    """Run one command and report errors."""
    try:
        if words in (["--version"], ["-V"]):
            sys.stdout.write(f"gradpivot {__version__}\n")
            return 0
        from gradpivot.cli.commands import run

        return run(_parse(words))
    except KeyboardInterrupt as stopped:
        if launched():
            # torchrun forwards Ctrl-C to processes that already received it from the terminal.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        where = f" ({stopped})" if str(stopped) else ""
        return _report(
            f"interrupted{where}; finished runs and checkpoints are kept. Run the same command to continue", INTERRUPTED
        )
    except GradPivotError as error:
        return _report(str(error), 1, of_others=type(error).__name__ == "LostProcessError")
    except BrokenPipeError:
        return 0
    except SystemExit as stop:
        # Rich exits on a broken pipe.
        if isinstance(stop.__context__, BrokenPipeError):
            return 0
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _report("the disk is full; free some space and run the same command to continue", 1)
        return _report(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)


def _flush() -> None:
    """Flush standard output; a closed pipe (head, less) is not an error.

    Without this, Python flushes at exit, prints a traceback and returns status 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    except OSError:
        # For example a full disk: Python flushes again at exit and reports it.
        pass


def _parse(words: list[str]) -> Any:
    """Parse the options; with several processes, only the first prints errors and help."""
    from gradpivot.cli.options.running import UnlearnOptions
    from gradpivot.cli.parser import parse

    if is_first():
        chosen = parse(words)
    else:
        with Path(os.devnull).open("w") as devnull, redirect_stdout(devnull), redirect_stderr(devnull):
            try:
                chosen = parse(words)
            except SystemExit:
                let_others_speak()
                raise
    if launched() and not isinstance(chosen, UnlearnOptions):
        raise GradPivotError(f"{words[0]!r} runs in one process; torchrun is for 'unlearn'")
    return chosen


def _report(message: str, status: int, *, of_others: bool = False) -> int:
    if may_speak(message, of_others=of_others):
        sys.stderr.write(f"gradpivot: {' '.join(message.split())}\n")
    else:
        let_others_speak()
    return status
