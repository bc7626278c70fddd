"""Dispatch from a command's options to its implementation."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

__all__ = ["DIVERGED", "UNMET", "run"]

DIVERGED = 3
"""Exit status of a diverged run: the folder is complete, but the model is not unlearned."""
UNMET = 4
"""Exit status of a run that ended short of its degree or conditions; what it reached is saved."""


@singledispatch
def run(chosen: Any) -> int:
    """Run the command and return its exit status."""
    # 'reproduce', 'store' and 'data' wrap the options of their subcommand.
    return run(chosen.chosen)
