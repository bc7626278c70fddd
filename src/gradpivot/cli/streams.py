"""Standard output and error that exist and take every character; nobody has to read standard error."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import re
import sys
import unicodedata

__all__ = ["escaped_json", "prepare_streams"]

_REPLACED = "gradpivot-replace"
_PLAIN = str.maketrans("–—−·×→←≤≥≈│─…“”‘’√", "---.x><<>~|-.\"\"''v")
"""One character each, so that tables stay aligned."""


def prepare_streams() -> None:
    """Print what a stream cannot encode in ASCII, and open a stream that the caller closed (``2>&-``) on nothing."""
    codecs.register_error(_REPLACED, _replace)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(_null(), "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif hasattr(stream, "reconfigure") and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors=_REPLACED)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = _Unread(sys.stderr.buffer, encoding, errors, line_buffering=True)


class _Unread(io.TextIOWrapper):
    """Standard error whose reader may go away, or whose disk is full: progress that is lost must not end a run."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def escaped_json(text: str) -> str:
    """JSON whose characters are escaped if standard output would replace them."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
    return text


def _null() -> int:
    """A descriptor of the null device that is not 0, 1 or 2, all of which are open then.

    Otherwise the next file opened, such as a database, becomes the standard error that libraries write to.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    return descriptor


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """The error handler: ASCII characters that look alike, else a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end].translate(_PLAIN)
    plain = (unicodedata.normalize("NFKD", character)[0] for character in unknown)
    return "".join(character if character.isascii() else "?" for character in plain), error.end
