"""All commands. Importing a module registers its commands."""

from __future__ import annotations

from gradpivot.cli import auditing, comparing, datasets, judging, listing, reporting, reproducing, tracing, unlearning
from gradpivot.cli.dispatch import DIVERGED, UNMET, run

__all__ = [
    "DIVERGED", "UNMET", "auditing", "comparing", "datasets", "judging", "listing", "reporting", "reproducing", "run",
    "tracing", "unlearning",
]  # fmt: skip
