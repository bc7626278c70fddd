"""Finding methods by name: every module in this package, every installed entry point, anybody's by import path."""

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
    """The names of all methods that match a shell pattern, sorted."""
    return sorted(name for name in _registered() if fnmatch(name, pattern))


def method_class(name: str) -> type[Method]:
    """The class of that name, or the one at ``package.module:Class``, which is called by that path from then on.

    Raises:
        GradPivotError: with the nearest name and all names.
    """
    found = _registered()
    if name in found:
        return found[name]
    if ":" in name:
        return Method.register(_own(name), name)
    hint = did_you_mean(name, found)
    raise GradPivotError(
        f"there is no method {name!r}{hint} The methods are {', '.join(sorted(found))}; your own goes in as "
        f"my_module:MyMethod"
    )


def _own(path: str) -> type[Method]:
    found = import_path(path)
    if not (isinstance(found, type) and issubclass(found, Method)) or inspect.isabstract(found):
        kind = getattr(found, "__name__", type(found).__name__)
        raise GradPivotError(f"{path} is {kind}; name a class that inherits from Method and has an unlearn")
    if found.__module__.partition(".")[0] == "gradpivot":
        raise GradPivotError(f"{path} is one of ours; call it {found.name!r}")
    return found


def make_method(config: Mapping[str, Any]) -> Method:
    """A method from what :meth:`Method.to_dict` wrote, or a person typed: ``{"method": "cup", "gamma": 0.3}``."""
    settings = dict(config)
    name = settings.pop("method", None)
    if not isinstance(name, str):
        raise GradPivotError('a method\'s configuration needs a name, for example {"method": "cup"}')
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
