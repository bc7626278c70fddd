"""Find engines by name: files here with a ``start`` function, installed entry points, or an import path.

An engine is one file with a class that implements :class:`Engine` and a function ``start(resources)`` that creates
it. Third parties register theirs in the entry point group ``gradpivot.engines``: ``slurm = "my_package:start"``.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points

import gradpivot.sweep.engines
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.runtime import import_path
from gradpivot.sweep.engines.job import Engine, Resources

__all__ = ["list_engines", "start_engine"]


def list_engines() -> list[str]:
    """Names of the built-in and installed engines."""
    return sorted(_paths())


def start_engine(name: str, resources: Resources) -> Engine:
    """Start an engine by name or by ``package.module:start``.

    Raises:
        GradPivotError: If there is no such engine; the message lists all names.
    """
    path = _paths().get(name, name)
    if ":" not in path:
        known = ", ".join(list_engines())
        hint = did_you_mean(name, _paths())
        raise GradPivotError(
            f"there is no engine {name!r}{hint} Choose from {known}, or give your own as my_module:start"
        )
    engine: Engine = import_path(path)(resources)
    return engine


def _paths() -> dict[str, str]:
    """Import path of each engine by name; built-in ones win."""
    found = {entry.name: entry.value for entry in entry_points(group="gradpivot.engines")}
    for file in pkgutil.iter_modules(gradpivot.sweep.engines.__path__):
        module = f"gradpivot.sweep.engines.{file.name}"
        if "start" in vars(importlib.import_module(module)):
            found[file.name] = f"{module}:start"
    return found
