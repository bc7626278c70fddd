"""User errors. A message is one line: the value, what is allowed, the way out.

The command line prints these without a traceback and exits with a non-zero status. Any other exception is a bug and
keeps its traceback.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

__all__ = [
    "GradPivotError", "NonFiniteError", "NotReachedWarning", "check_parallel", "did_you_mean", "install_command",
    "number_or_nan",
]  # fmt: skip

_MAX_PARALLEL = 1024
"""More threads or processes than that crash the machine or torch; no machine here has as many cores."""


class GradPivotError(ValueError):
    """Invalid input or an impossible request; the message says what to do instead."""


class NonFiniteError(GradPivotError, FloatingPointError):
    """A loss, gradient or weight became NaN or infinite."""


class NotReachedWarning(UserWarning):
    """A run ended short of its degree or conditions; the text is that of :attr:`gradpivot.Result.missed`."""


def check_parallel(name: str, count: object, least: int = 1) -> None:
    """Raise unless a number of threads or processes is an integer between ``least`` and 1,024."""
    if not isinstance(count, Integral) or not least <= int(count) <= _MAX_PARALLEL:
        raise GradPivotError(f"{name} is {count!r}; give {least} to {_MAX_PARALLEL:,}")


def did_you_mean(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """Suggest the closest known name for the middle of an error message; ``otherwise`` if none is close."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def install_command(extra: str) -> str:
    """The command that installs an extra from the checkout; the name on PyPI belongs to someone else."""
    return f"pip install -c constraints.txt -e '.[{extra}]' in gradpivot's folder"


def number_or_nan(value: Any) -> float:
    """The value as a float; NaN, which is in no range, for text, truth values and anything else that is no number."""
    try:
        return math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan
