"""Finding engines by name: every file here with a ``start``, every installed entry point, anybody's by import path.

An engine is one file: a class that does what :class:`Engine` says, and ``start(resources)``, which makes one. Third
parties name theirs in the entry point group ``gradpivot.engines``: ``slurm = "my_package:start"``.
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
    """The names of the built-in and installed engines."""
    return sorted(_paths())


def start_engine(name: str, resources: Resources) -> Engine:
    """The engine of that name, or what ``package.module:start`` starts.

    Raises:
        GradPivotError: if there is none, with the nearest name and all names.
    """
    path = _paths().get(name, name)
    if ":" not in path:
        known = ", ".join(list_engines())
        told = f"there is no engine {name!r}{did_you_mean(name, _paths())} The engines are {known}"
        raise GradPivotError(f"{told}; your own goes in as my_module:start")
    engine: Engine = import_path(path)(resources)
    return engine


def _paths() -> dict[str, str]:
    """The import path of each engine by its name; ours win."""
    found = {entry.name: entry.value for entry in entry_points(group="gradpivot.engines")}
    for file in pkgutil.iter_modules(gradpivot.sweep.engines.__path__):
        module = f"gradpivot.sweep.engines.{file.name}"
        if "start" in vars(importlib.import_module(module)):
            found[file.name] = f"{module}:start"
    return found
