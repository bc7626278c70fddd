"""The errors people can cause and repair: one line, the value, the way out.

The command line prints these without a traceback and exits with a non-zero status. Anything else that
escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["GradPivotError", "NonFiniteError", "did_you_mean", "to_install"]


class GradPivotError(ValueError):
    """Something the caller asked for cannot be done; the message says what to do instead."""


class NonFiniteError(GradPivotError, FloatingPointError):
    """A loss, gradient or weight became NaN or infinite."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The middle of a message about a name that is not known: the nearest that is, or ``otherwise``."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def to_install(extra: str) -> str:
    """The command that installs an extra of ours, from the checkout: the name on public registries is not ours."""
    return f"pip install -c constraints.txt -e '.[{extra}]' in gradpivot's folder"
