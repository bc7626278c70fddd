"""From the options of a command to what it does: each command registers itself."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

__all__ = ["DIVERGED", "UNMET", "run"]

DIVERGED = 3
"""Exit status of a run that went to NaN: everything is written, but there is no unlearned model."""
UNMET = 4
"""Exit status of a run towards a target that was not met: the best compromise is written."""


@singledispatch
def run(chosen: Any) -> int:
    """Do what the options ask for and give the exit status."""
    # 'reproduce', 'store' and 'data' wrap the options of what follows.
    return run(chosen.chosen)
