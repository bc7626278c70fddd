"""The errors people can cause and repair: one line, the value, the way out.

The command line prints these without a traceback and exits with a non-zero status. Anything else that
escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

__all__ = ["GradPivotError", "NonFiniteError"]


class GradPivotError(ValueError):
    """Something the caller asked for cannot be done; the message says what to do instead."""


class NonFiniteError(GradPivotError, FloatingPointError):
    """A loss, gradient or weight became NaN or infinite."""
