"""Import objects by path, ``package.module:name``: methods, problems, models, engines."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean

__all__ = ["describe_error", "import_path", "load_entry_point"]


def import_path(path: str) -> Any:
    """Import the object at ``package.module:name``, installed or in the current folder.

    Import only what the user named: this runs the module's code.

    Raises:
        GradPivotError: if the module or the name does not exist, or the import fails.
    """
    module, _, name = path.partition(":")
    try:
        _search_folder_for(module)
        found = importlib.import_module(module)
    except GradPivotError:
        raise
    # SystemExit: a script that calls sys.exit or parses its arguments on import must not end this process.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise GradPivotError(
                f"no module named {missing!r}; it must be in the current folder or installed"
            ) from None
        raise GradPivotError(f"importing {module} failed: {describe_error(error)}") from error
    try:
        return attrgetter(name)(found)
    except AttributeError:
        hint = did_you_mean(name, dir(found), "") or _shadowed(found)
        raise GradPivotError(f"module {module} has no attribute {name!r}{hint}") from None


def _search_folder_for(module: str) -> None:
    """Search the current folder for a module that is not installed, and for what that module imports.

    The folder goes last: a file there must not replace an installed package, which others import by that name.
    """
    top = module.partition(".")[0]
    if top in sys.modules or find_spec(top) is not None:
        return
    folder = str(Path.cwd())
    importlib.invalidate_caches()
    # Only if it is there: a mistyped name leaves the path as it was.
    if PathFinder.find_spec(top, [folder]) is not None:
        sys.path.append(folder)


def _shadowed(found: ModuleType) -> str:
    """Advice if the user probably meant a file in the current folder, which an installed module hides."""
    own = Path.cwd() / f"{found.__name__.replace('.', '/')}.py"
    file = getattr(found, "__file__", None)
    if not own.is_file() or (file is not None and own.samefile(file)):
        return ""
    return f"; an installed module has that name, so rename {own.name}"


def load_entry_point(entry: EntryPoint) -> Any:
    """Load an entry point of an installed package.

    Raises:
        GradPivotError: if it cannot be loaded; names the package.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        package = f" of package {entry.dist.name}" if entry.dist else ""
        raise GradPivotError(
            f"cannot load entry point {entry.name!r} ({entry.group}){package}: {describe_error(error)}; "
            f"fix or uninstall that package"
        ) from error


def describe_error(error: BaseException) -> str:
    """Format an exception as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
