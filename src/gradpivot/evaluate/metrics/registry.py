"""Find metrics by name, among this folder's files, installed entry points and registered metrics."""

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
    "all_metrics", "find_metric", "headline_metrics", "metrics_digest", "register_metric", "scored_metrics",
    "standing_metrics", "steering_metrics", "unregister_metric",
]  # fmt: skip

METRIC_ENTRY_POINTS = "gradpivot.metrics"

_found: dict[str, Metric] = {}
_loaded = False


@cache
def all_metrics() -> tuple[Metric, ...]:
    """All metrics: built-in in file order, then entry points, then registered ones."""
    _load()
    return tuple(_found.values())


def find_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        GradPivotError: If there is none, with the closest name and all names.
    """
    all_metrics()
    if name in _found:
        return _found[name]
    hint = did_you_mean(name, _found)
    raise GradPivotError(f"there is no metric {name!r}{hint} The metrics are {', '.join(_found)}")


@cache
def scored_metrics(kind: str = "class") -> tuple[Metric, ...]:
    """The metrics that every evaluation of a split of this kind computes."""
    return tuple(m for m in all_metrics() if not m.on_request or (kind != "class" and m.is_for_records_only))


@cache
def headline_metrics(kind: str = "class") -> tuple[Metric, ...]:
    """Those of :func:`scored_metrics` that the console and tables show."""
    return tuple(m for m in scored_metrics(kind) if m.headline in (None, _forgotten(kind)))


@cache
def standing_metrics(kind: str = "class", *, attacks: bool = True) -> tuple[str, ...]:
    """Names of the metrics used by H and Δ, in order; ``attacks=False`` for "H without MIA"."""
    return tuple(m.name for m in headline_metrics(kind) if m.in_standings and (attacks or not m.is_attack))


def _forgotten(kind: str) -> str:
    return "class" if kind == "class" else "records"


@cache
def steering_metrics() -> tuple[str, ...]:
    """Names of the metrics allowed in ``until`` and ``keep`` conditions."""
    return tuple(m.name for m in all_metrics() if m.variant_of is None)


def metrics_digest() -> str:
    """Digest of the metrics that evaluations compute, for the keys of stored runs.

    Runs stored without a built-in metric for records remain valid: tables show a dash.
    """
    described = [
        (m, foreign_source(m.compute) or "") for m in all_metrics() if not m.on_request or m.is_for_records_only
    ]
    return ",".join(f"{m.name}{source}" for m, source in described if source or not m.on_request)


def register_metric(described: Metric) -> Metric:
    """Register a metric in this process. Use an entry point in ``gradpivot.metrics`` to register it in every process.

    Raises:
        GradPivotError: If the name is taken by a metric or by another attribute of ``Scores``.
    """
    from gradpivot.evaluate.scores import Scores

    all_metrics()
    if described.name in {*dir(Scores), *Scores.__dataclass_fields__}.difference(_found):
        raise GradPivotError(f"the name {described.name!r} is already an attribute of Scores; choose another name")
    _add(described)
    _clear()
    return described


def unregister_metric(name: str) -> None:
    """Remove a registered metric."""
    del _found[name]
    _clear()


def _load() -> None:
    global _loaded
    if _loaded:
        return
    # Set first, because importing a third-party module may register metrics.
    _loaded = True
    for module in pkgutil.iter_modules(gradpivot.evaluate.metrics.__path__):
        _add_all(importlib.import_module(f"gradpivot.evaluate.metrics.{module.name}"))
    for entry in entry_points(group=METRIC_ENTRY_POINTS):
        _add_all(load_entry_point(entry))


def _add_all(source: Any) -> None:
    """Add a metric, or all metrics of a module."""
    for described in [source] if isinstance(source, Metric) else vars(source).values():
        if isinstance(described, Metric):
            _add(described)


def _add(described: Metric) -> None:
    taken = _found.setdefault(described.name, described)
    if taken is not described:
        raise GradPivotError(
            f"the metric name {described.name!r} is taken by {taken.compute.__module__}; choose another name"
        )


def _clear() -> None:
    for cached in (all_metrics, scored_metrics, headline_metrics, standing_metrics, steering_metrics):
        cached.cache_clear()
