"""Load and validate recipes.

A recipe is a YAML file. A single value is fixed; a list or range is searched. The method's space is the product of
all lists and ranges::

    schema: gradpivot.recipe/1
    title: Two methods on my data
    problem: my_module:my_problem
    forget: [{classes: 0-9}, {fraction: 0.1}]
    seeds: 3
    protocols:
      clean:
        settings: {batch_size: 32}
        series:
          CUP: {method: cup, lr: [1e-4, 1e-3], gamma: {from: 0.1, to: 0.9, count: 9}}
          GA:  {method: ga, lr: {from: 1e-4, to: 1e-2, count: 20, scale: log}}

``extends: NAME`` starts from another recipe and overrides the given keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.experiments.recipes.finding import KEYS, recipe_content
from gradpivot.experiments.recipes.recipe import RECIPE_SCHEMA, ForgetSpec, Recipe, SeriesSpec, numbers_in
from gradpivot.experiments.recipes.spaces import number, space
from gradpivot.methods import list_methods, method_class
from gradpivot.runtime import import_path

__all__ = ["OwnCodeError", "load_recipe"]

_REFERENCES = ("retrain", "none")
_PROTOCOL_KEYS = ("about", "base", "settings", "series")


class OwnCodeError(GradPivotError):
    """A series cannot be checked without importing the modules that its recipe names."""


def load_recipe(name: str | Path, *, imports: bool = True) -> Recipe:
    """Load and validate a built-in recipe or a file.

    Args:
        name: The recipe.
        imports: Whether to import the modules that it names, which executes them. Running a recipe needs them, because
            they register methods and objectives.

    Raises:
        OwnCodeError: If a series cannot be checked without importing.
        GradPivotError: If the recipe is invalid; the message names the place and the allowed values.
    """
    content = recipe_content(name)
    label = Path(name).stem
    try:
        return _recipe(label, content, imports)
    except GradPivotError as error:
        raise type(error)(f"recipe {name}: {error}") from None


def _recipe(name: str, content: Mapping[str, Any], imports: bool) -> Recipe:
    _only_keys(content, KEYS, "the recipe")
    if content.get("schema") != RECIPE_SCHEMA:
        raise GradPivotError(f"schema is {content.get('schema')!r}; this version reads {RECIPE_SCHEMA!r}")
    for needed in ("problem", "forget", "protocols"):
        if not content.get(needed):
            raise GradPivotError(f"{needed!r} is missing; see 'gradpivot recipes digits' for a complete example")
    seeds = content.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise GradPivotError(f"seeds is {seeds!r}; it must be a whole number, at least 1")
    reference = content.get("reference", "retrain")
    if reference not in _REFERENCES:
        raise GradPivotError(f"reference is {reference!r}; choose one of {', '.join(_REFERENCES)}")
    problem = str(content["problem"])
    if imports:
        _import_module_of(problem)
    own = None if imports or ":" not in problem else problem
    protocols = _mapping(content["protocols"], "protocols")
    series = [
        found
        for label, protocol in protocols.items()
        for found in _protocol(str(label), _mapping(protocol, f"protocol {label}"), imports, own)
    ]
    return Recipe(
        name=name,
        title=str(content.get("title", name)),
        about=" ".join(str(content.get("about", "")).split()),
        problem=problem,
        forget=_forget_specs(content["forget"]),
        seeds=seeds,
        series=tuple(series),
        reference=reference,
    )


def _import_module_of(problem: str) -> None:
    """Import a user's problem first: its module may register methods and objectives that the recipe uses."""
    if ":" in problem:
        try:
            import_path(problem)
        except GradPivotError as error:
            raise GradPivotError(f"cannot load the problem {problem!r}: {error}") from None


def _forget_specs(given: Any) -> tuple[ForgetSpec, ...]:
    entries = given if isinstance(given, list) else [given]
    found = []
    for entry in entries:
        entry = _mapping(entry, "forget")
        _only_keys(entry, ("classes", "fraction"), "forget")
        fraction = number(entry.get("fraction"))
        if fraction is not None and not isinstance(fraction, int | float):
            raise GradPivotError(f"forget: fraction is {fraction!r}; it must be a number between 0 and 1")
        classes = numbers_in(entry["classes"]) if "classes" in entry else ()
        found.append(ForgetSpec(classes=classes, fraction=fraction))
    return tuple(found)


def _protocol(label: str, content: Mapping[str, Any], imports: bool, own: str | None) -> Iterable[SeriesSpec]:
    where = f"protocol {label}"
    _only_keys(content, _PROTOCOL_KEYS, where)
    base = content.get("base", label if label in ("paper", "clean") else "clean")
    shared = _mapping(content.get("settings", {}), f"{where}, settings")
    series = _mapping(content.get("series", {}), f"{where}, series")
    if not series:
        raise GradPivotError(f"{where} has no series; add one such as CUP: {{method: cup, gamma: [0.3, 0.5]}}")
    for name, entry in series.items():
        try:
            entry = _mapping(entry, "a series")
            if not imports and ":" in (method := str(entry.get("method"))):
                raise OwnCodeError(f"{method} is imported only when the recipe runs")
            methods = space(str(base), shared, entry)
        except OwnCodeError as error:
            raise OwnCodeError(f"{where}, {name}: {error}") from None
        except GradPivotError as error:
            if own is not None:
                raise OwnCodeError(
                    f"{where}, {name}: {error}; {own} may register it, but is imported only when the recipe runs"
                ) from None
            raise GradPivotError(f"{where}, {name}: {error}") from None
        yield SeriesSpec(name=str(name), protocol=label, methods=methods)
    # Last, because loading a series may register a third-party method with more settings.
    _check_shared(shared, f"{where}, settings")


def _check_shared(shared: Mapping[str, Any], where: str) -> None:
    """Reject settings that no method has; they would be ignored silently."""
    kinds = [method_class(name) for name in list_methods()]
    _only_keys(shared, sorted({field.name for kind in kinds for field in dataclasses.fields(kind)}), where)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GradPivotError(f"{where} is {value!r}; it must be a mapping (name: value)")
    return value


def _only_keys(content: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in content:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise GradPivotError(f"{where}: unknown key {key!r}{hint} Choose from {', '.join(allowed)}")
