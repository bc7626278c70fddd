"""What people name by import path, ``package.module:name``: methods, problems, models, engines."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint
from operator import attrgetter
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean

__all__ = ["describe_error", "import_path", "load_entry_point"]


def import_path(path: str) -> Any:
    """The object that ``package.module:name`` names.

    Raises:
        GradPivotError: in one line: no such module, no such name in it (with the nearest), or what the import raised.
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except GradPivotError:
        raise
    # A script that parses its arguments or ends itself on import ends only the import.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise GradPivotError(
                f"there is no module {missing!r}; modules are looked for in the current folder and among what is "
                f"installed"
            ) from None
        raise GradPivotError(f"importing {module} failed: {describe_error(error)}") from error
    try:
        return attrgetter(name)(found)
    except AttributeError:
        hint = did_you_mean(name, dir(found), "")
        raise GradPivotError(f"the module {module} has no {name!r}{hint}") from None


def load_entry_point(entry: EntryPoint) -> Any:
    """What an installed package offers.

    Raises:
        GradPivotError: in one line, with the package to repair.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        package = f" of the package {entry.dist.name}" if entry.dist else ""
        raise GradPivotError(
            f"the entry point {entry.name!r} ({entry.group}){package} cannot be loaded: {describe_error(error)}; "
            f"repair that package or uninstall it"
        ) from error


def describe_error(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
