"""The entry point: parse, run, and turn what people can cause into one line and an exit status."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from gradpivot.errors import GradPivotError
from gradpivot.version import __version__

__all__ = ["main"]

INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 if all went well, 1 for an error with a way out, 2 for a mistyped option, 3 for a run that diverged, 130 after
        Ctrl-C.
    """
    words = list(sys.argv[1:] if words is None else words)
    if words in (["--version"], ["-V"]):
        sys.stdout.write(f"gradpivot {__version__}\n")
        return 0
    try:
        from gradpivot.cli.commands import run
        from gradpivot.cli.parser import parse

        return run(parse(words or ["--help"]))
    except KeyboardInterrupt as stopped:
        where = f" ({stopped})" if str(stopped) else ""
        return _say(
            f"interrupted{where}; finished runs and checkpoints are kept. Start the same command again to continue",
            INTERRUPTED,
        )
    except GradPivotError as error:
        return _say(str(error), 1)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing more can be said to it, and nothing is wrong.
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _say("the disk is full; free some space and start the same command again to continue", 1)
        return _say(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"gradpivot: {' '.join(message.split())}\n")
    return status
