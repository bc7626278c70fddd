"""Find methods by name: modules in this package, installed entry points, and import paths."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import gradpivot.methods
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.methods.method import Method
from gradpivot.runtime import import_path, load_entry_point

__all__ = ["list_methods", "make_method", "method_class"]

METHOD_ENTRY_POINTS = "gradpivot.methods"


def list_methods(pattern: str = "*") -> list[str]:
    """Sorted names of all methods that match a shell pattern."""
    return sorted(name for name in _registered() if fnmatch(name, pattern))


def method_class(name: str) -> type[Method]:
    """Look up a method class by name, or import it from ``package.module:Class`` and register it under that path.

    Raises:
        GradPivotError: For an unknown name, with a suggestion.
    """
    found = _registered()
    if name in found:
        return found[name]
    if ":" in name:
        return Method.register(_import_method(name), name)
    hint = did_you_mean(name, found)
    raise GradPivotError(
        f"unknown method {name!r}{hint} Available: {', '.join(sorted(found))}, or your own as my_module:MyMethod"
    )


def _import_method(path: str) -> type[Method]:
    found = import_path(path)
    if not (isinstance(found, type) and issubclass(found, Method)) or inspect.isabstract(found):
        kind = getattr(found, "__name__", type(found).__name__)
        raise GradPivotError(f"{path} is {kind}; it must be a class that inherits from Method and implements unlearn")
    if found.__module__.partition(".")[0] == "gradpivot":
        raise GradPivotError(f"{path} is a built-in method; use its name {found.name!r}")
    return found


def make_method(config: Mapping[str, Any]) -> Method:
    """Create a method from a configuration such as ``{"method": "cup", "gamma": 0.3}``; inverts ``to_dict``."""
    settings = dict(config)
    name = settings.pop("method", None)
    if not isinstance(name, str):
        raise GradPivotError('the configuration has no method name; add one, for example {"method": "cup"}')
    return method_class(name).from_dict(settings)


def _registered() -> Mapping[str, type[Method]]:
    _import_all()
    return Method.registered()


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules(gradpivot.methods.__path__):
        importlib.import_module(f"gradpivot.methods.{module.name}")
    for entry in entry_points(group=METHOD_ENTRY_POINTS):
        load_entry_point(entry)
