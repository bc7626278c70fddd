"""The entry point: parse, run, and turn user errors into one line and an exit status."""

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
from gradpivot.cli.torchrun import is_first, launched, let_others_speak, may_speak
from gradpivot.errors import GradPivotError

__all__ = ["main"]

INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 if all went well, 1 for an error with a way out, 2 for a mistyped option, 3 for a run that diverged, 4 for a
        target that was not met, 130 after Ctrl-C.
    """
    try:
        return _done(list(sys.argv[1:] if words is None else words))
    finally:
        _flush()


def _done(words: list[str]) -> int:
    """Run one command and report errors."""
    try:
        if words in (["--version"], ["-V"]):
            sys.stdout.write(f"gradpivot {__version__}\n")
            return 0
        from gradpivot.cli.commands import run

        return run(_parsed(words))
    except KeyboardInterrupt as stopped:
        if launched():
            # torchrun forwards Ctrl-C to processes that already got it from the terminal.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        where = f" ({stopped})" if str(stopped) else ""
        return _say(
            f"interrupted{where}; finished runs and checkpoints are kept. Run the same command to continue", INTERRUPTED
        )
    except GradPivotError as error:
        return _say(str(error), 1, of_others=type(error).__name__ == "LostProcessError")
    except BrokenPipeError:
        return 0
    except SystemExit as stop:
        # How rich reports a broken pipe.
        if isinstance(stop.__context__, BrokenPipeError):
            return 0
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _say("the disk is full; free some space and run the same command to continue", 1)
        return _say(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)


def _flush() -> None:
    """Flush standard output; a reader that has gone (head, less) is no error.

    Here and not as Python ends, where a reader that has gone is a traceback and the status 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except OSError:
        # A full disk, for example: Python tries again at exit and reports it.
        pass


def _parsed(words: list[str]) -> Any:
    """Parse the options; of several processes only the first prints errors and help."""
    from gradpivot.cli.options.running import UnlearnOptions
    from gradpivot.cli.parser import parse

    if is_first():
        chosen = parse(words)
    else:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            try:
                chosen = parse(words)
            except SystemExit:
                let_others_speak()
                raise
    if launched() and not isinstance(chosen, UnlearnOptions):
        raise GradPivotError(f"{words[0]!r} runs in one process; torchrun is for 'unlearn'")
    return chosen


def _say(message: str, status: int, *, of_others: bool = False) -> int:
    if may_speak(message, of_others=of_others):
        sys.stderr.write(f"gradpivot: {' '.join(message.split())}\n")
    else:
        let_others_speak()
    return status
