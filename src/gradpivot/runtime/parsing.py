"""Parse and check JSON and YAML that others wrote: bounded in size and depth, and every failure is a ValueError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import UnionType
from typing import Any

import yaml

__all__ = ["Number", "checked", "is_number", "parse_json", "parse_yaml"]

Number = int | float
"""In :func:`checked`: finite, and not a flag."""

MAX_DEPTH = 100
"""Deeper values overflow the stack of whatever walks them; our own files have about ten levels."""
MAX_YAML_CHARACTERS = 1_000_000
MAX_YAML_VALUES = 100_000
"""Number of values after aliases are expanded: twenty lines of aliases of aliases make a billion."""

_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: if it is not JSON in UTF-8, or is nested more than :data:`MAX_DEPTH` levels deep.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for outer in level if isinstance(outer, dict | list) for part in _parts(outer)]
        if not level:
            return value
    raise _too_deep()


def parse_yaml(text: str, loader: type[Any] = _SAFE_LOADER) -> Any:
    """Parse YAML with a safe loader.

    Raises:
        ValueError: in one line, if it is not YAML, too large, too deep, or expands to too many values.
    """
    if len(text) > MAX_YAML_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters; at most {MAX_YAML_CHARACTERS:,} are read")
    try:
        _check_events(text)
        return yaml.load(text, loader)
    # A malformed date, number or merge raises whatever Python's own constructors raise.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def checked(values: Any, **kinds: type[Any] | UnionType) -> Mapping[str, Any]:
    """The mapping ``values``, if it has these keys with values of these types; further keys may be anything.

    Raises:
        ValueError: naming the first key that is missing or has another type, or a number that is not finite.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"it has {_short(values)} instead of a mapping with {', '.join(kinds)}")
    for name, kind in kinds.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        value = values[name]
        is_sound = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not is_sound or (isinstance(value, Number) and not is_number(value)):
            expected = getattr(kind, "__name__", str(kind))
            raise ValueError(f"{name} is {_short(value)}; it must be of type {expected}")
    return values


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that fits a float."""
    return isinstance(value, Number) and -1e300 < value < 1e300


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_events(text: str) -> None:
    """Count values and levels without building them; an alias counts as much as what it stands for."""
    counts, anchors, sizes = [0], [""], dict[str, int]()

    def add(count: int) -> None:
        counts[-1] += count
        if counts[-1] > MAX_YAML_VALUES:
            raise ValueError(f"it has more than {MAX_YAML_VALUES:,} values, counting what its aliases stand for")

    for event in yaml.parse(text, _SAFE_LOADER):
        if isinstance(event, yaml.AliasEvent):
            # An anchor that is still open refers to itself; PyYAML names an unknown one.
            if event.anchor in anchors:
                raise ValueError(f"the alias *{event.anchor} stands inside its own anchor")
            add(sizes.get(str(event.anchor), 1))
        elif isinstance(event, yaml.ScalarEvent):
            add(1)
            sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor or "")
            if len(counts) > MAX_DEPTH:
                raise _too_deep()
        elif isinstance(event, yaml.CollectionEndEvent):
            size = counts.pop()
            sizes[anchors.pop()] = size
            add(size)


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else value


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
