"""All commands: what each one does is in the module named here. They load, call the layer below, write and print."""

from __future__ import annotations

# Importing a module registers its commands.
from gradpivot.cli import comparing, datasets, judging, listing, reproducing, tracing, unlearning
from gradpivot.cli.dispatch import DIVERGED, UNMET, run

__all__ = [
    "DIVERGED", "UNMET", "comparing", "datasets", "judging", "listing", "reproducing", "run", "tracing", "unlearning",
]  # fmt: skip
