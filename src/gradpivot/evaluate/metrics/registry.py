"""Finding metrics by name: every file of this folder, every installed entry point, and what was registered by hand."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import gradpivot.evaluate.metrics
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.evaluate.metrics.metric import Metric
from gradpivot.runtime import foreign_source, load_entry_point

__all__ = [
    "all_metrics", "find_metric", "metrics_digest", "register_metric", "scored_metrics", "standing_metrics",
    "steering_metrics", "unregister_metric",
]  # fmt: skip

METRIC_ENTRY_POINTS = "gradpivot.metrics"

_found: dict[str, Metric] = {}
_loaded = False


@cache
def all_metrics() -> tuple[Metric, ...]:
    """All metrics: ours in the order of their files, then those of entry points, then those registered by hand."""
    _load()
    return tuple(_found.values())


def find_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        GradPivotError: with the nearest name and all names.
    """
    all_metrics()
    if name in _found:
        return _found[name]
    hint = did_you_mean(name, _found)
    raise GradPivotError(f"there is no metric {name!r}{hint} The metrics are {', '.join(_found)}")


@cache
def scored_metrics() -> tuple[Metric, ...]:
    """Those that every evaluation computes and tables show."""
    return tuple(m for m in all_metrics() if not m.on_request)


@cache
def standing_metrics(*, attacks: bool = True) -> tuple[str, ...]:
    """The names of those that H and Δ are taken on, in this order; without ``attacks`` for "H without MIA"."""
    return tuple(m.name for m in all_metrics() if m.in_standings and (attacks or not m.is_attack))


@cache
def steering_metrics() -> tuple[str, ...]:
    """The names of those that a condition to forget until, or to keep, may be about."""
    return tuple(m.name for m in all_metrics() if m.variant_of is None)


def metrics_digest() -> str:
    """What every evaluation computes, for keys: a record without one of these metrics is not the same."""
    return ",".join(f"{m.name}{foreign_source(m.compute) or ''}" for m in scored_metrics())


def register_metric(described: Metric) -> Metric:
    """Add a metric in this process; an entry point in the group ``gradpivot.metrics`` adds it in every process.

    Raises:
        GradPivotError: if the name is taken, by a metric or by another attribute of ``Scores``.
    """
    from gradpivot.evaluate.scores import Scores

    all_metrics()
    if described.name in {*dir(Scores), *Scores.__dataclass_fields__}.difference(_found):
        raise GradPivotError(f"Scores has an attribute {described.name!r} already; choose another name")
    _add(described)
    _clear()
    return described


def unregister_metric(name: str) -> None:
    """Remove a metric that was registered by hand."""
    del _found[name]
    _clear()


def _load() -> None:
    global _loaded
    if _loaded:
        return
    # First, because a third party's module may register metrics itself while it is imported.
    _loaded = True
    for module in pkgutil.iter_modules(gradpivot.evaluate.metrics.__path__):
        _add_all(importlib.import_module(f"gradpivot.evaluate.metrics.{module.name}"))
    for entry in entry_points(group=METRIC_ENTRY_POINTS):
        _add_all(load_entry_point(entry))


def _add_all(place: Any) -> None:
    """A metric, or the metrics of a module."""
    for described in [place] if isinstance(place, Metric) else vars(place).values():
        if isinstance(described, Metric):
            _add(described)


def _add(described: Metric) -> None:
    taken = _found.setdefault(described.name, described)
    if taken is not described:
        raise GradPivotError(
            f"the metric name {described.name!r} is taken by {taken.compute.__module__}; choose another name"
        )


def _clear() -> None:
    for cached in (all_metrics, scored_metrics, standing_metrics, steering_metrics):
        cached.cache_clear()
