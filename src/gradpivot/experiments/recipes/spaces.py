"""Search spaces: expand lists and ranges into all combinations of settings. No torch."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.methods import Method, method_class

__all__ = ["is_range", "number", "space"]

MAX_SETTINGS = 100_000
"""Anything larger is a typo, not a search space."""
_RANGE_KEYS = ("from", "to", "count", "scale")


def space(base: str, shared: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[Method, ...]:
    """One method per combination of the searched settings."""
    if "method" not in entry:
        raise GradPivotError("the series has no method; add one such as method: cup (see 'gradpivot methods')")
    kind = method_class(str(entry["method"]))
    fields = {field.name for field in dataclasses.fields(kind)}
    given = {name: value for name, value in shared.items() if name in fields}
    given |= {name: value for name, value in entry.items() if name != "method"}
    values = {str(name): _values(str(name), value) for name, value in given.items()}
    count = math.prod(map(len, values.values()))
    if not 1 <= count <= MAX_SETTINGS:
        raise GradPivotError(f"the search space has {count} settings; it must have between 1 and {MAX_SETTINGS}")
    return tuple(
        kind.protocol(base, **dict(zip(values, combination, strict=True)))
        for combination in itertools.product(*values.values())
    )


def _values(name: str, given: Any) -> list[Any]:
    """The values of a setting: from a list, a range or a single value."""
    if isinstance(given, list):
        if not given:
            raise GradPivotError(f"{name} is an empty list; give at least one value")
        for value in given:
            if isinstance(value, list | Mapping):
                raise GradPivotError(f"{name} has {value!r} in its list; a list may hold only single values")
        return [number(value) for value in given]
    return _range(name, given) if isinstance(given, Mapping) else [number(given)]


def is_range(given: Mapping[str, Any]) -> bool:
    """Whether a mapping is a range, not settings."""
    return "from" in given and "to" in given


def _range(name: str, given: Mapping[str, Any]) -> list[float]:
    first, last, count = (number(given.get(key)) for key in ("from", "to", "count"))
    scale = given.get("scale", "linear")
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (first, last))
    sound = numeric and isinstance(count, int) and 2 <= count <= MAX_SETTINGS and set(given) <= set(_RANGE_KEYS)
    if not sound or scale not in ("linear", "log") or (scale == "log" and min(first, last) <= 0):
        raise GradPivotError(
            f"{name} is {dict(given)}; a range is {{from: 1e-4, to: 1e-2, count: 20, scale: linear or log}}"
        )
    shares = [i / (count - 1) for i in range(1, count - 1)]
    if scale == "log":
        between = [_rounded(first * (last / first) ** share) for share in shares]
    else:
        between = [_rounded(first + (last - first) * share) for share in shares]
    return [float(first), *between, float(last)]


def _rounded(value: float) -> float:
    """Round to ten significant digits, so that 0.1 + 0.2 is 0.3."""
    return float(f"{value:.10g}")


def number(value: Any) -> Any:
    """Parse numbers such as 1e-4, which YAML 1.1 reads as text for lack of a decimal point."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
