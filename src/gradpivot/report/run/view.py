"""Data and text of the run page: a comparison as compact JSON-able fractions, the verdict, missing parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradpivot.evaluate import Scored, Scores, find_metric, headline_metrics, standing_metrics
from gradpivot.report.common.plane import plane_front, zoom_box
from gradpivot.report.common.tables import is_determined, nearest, point_delta, rows, with_reference
from gradpivot.report.common.wording import arrow, direction, family, is_number, number, setting, symbol, verdict_point
from gradpivot.results import Comparison, Frontier, Point, really_changed

__all__ = ["history_view", "missing_parts", "payload", "uphill_shares", "verdict"]

MAX_HISTORY_POINTS = 500
"""Longer histories are thinned to this many points, which keeps the page small."""


def payload(comparison: Comparison) -> dict[str, Any]:
    """Data for the page's script."""
    frontiers = [with_reference(frontier, comparison) for frontier in comparison.frontiers]
    models = {"original": comparison.original}
    if comparison.retrained:
        models["retrained"] = comparison.retrained
    reference = comparison.retrained.classification if comparison.retrained else None
    return {
        "arrow": direction(comparison.kind),
        "metrics": [{"key": name, "name": find_metric(name).symbol} for name in standing_metrics(comparison.kind)],
        "models": [{**_point(point, reference, comparison.kind), "name": name} for name, point in models.items()],
        "frontiers": [_frontier(frontier) for frontier in frontiers],
        "zoom": zoom_box(frontiers, list(models.values())),
    }


def _frontier(frontier: Frontier) -> dict[str, Any]:
    front, shown = plane_front(frontier), nearest(frontier)
    return {
        "name": frontier.name,
        "symbol": symbol(frontier.knob),
        "gamma": frontier.knob == "gamma" and bool(frontier.points),
        "points": [
            {
                **_point(point, frontier.reference, frontier.kind),
                "run": setting(frontier, point),
                "family": family(frontier, point),
            }
            for point in frontier.points
        ],
        "front": [_index(frontier.points, point) for point in front],
        "start": _index(frontier.points, shown) if shown else 0,
    }


def _index(points: Sequence[Point], wanted: Point) -> int:
    # By identity: two runs may have equal scores.
    return next(i for i, point in enumerate(points) if point is wanted)


def _point(point: Point, reference: Scored | None, kind: str) -> dict[str, Any]:
    scores = point.classification
    return {
        "label": point.label,
        "knob": _finite(point.knob),
        **{metric: None if point.diverged else _with_interval(scores, metric) for metric in standing_metrics(kind)},
        "undetermined": [metric for metric in standing_metrics(kind) if not is_determined(scores, find_metric(metric))],
        "more": [] if point.diverged else _more(scores, kind),
        "delta": point_delta(point, reference, kind),
        "seconds": _finite(point.seconds),
        "diverged": _diverged(point.diverged),
        "history": history_view(point.history),
    }


def _more(scores: Scores, kind: str) -> list[list[str]]:
    """Scores outside the charts: name, value and note."""
    return [
        [
            f"{metric.symbol} {arrow(metric, kind)}",
            metric.text(getattr(scores, metric.name)),
            "" if is_determined(scores, metric) else "undetermined",
        ]
        for metric in headline_metrics(kind)
        if not metric.in_standings
    ]


def _finite(value: float | None) -> float | None:
    """None for NaN and infinity, which JSON cannot hold."""
    return value if is_number(value) else None


def _with_interval(scores: Scores, metric: str) -> list[float] | None:
    value = getattr(scores, metric)
    return [value, *scores.interval(metric)] if is_number(value) else None


def _diverged(diverged: Mapping[str, Any] | None) -> str | None:
    if diverged is None:
        return None
    return f"diverged at step {diverged.get('step', '?')}: {diverged.get('reason') or 'not finite'}"


def history_view(history: Mapping[str, Sequence[float | None]]) -> dict[str, Any] | None:
    """The cosine over the steps, thinned for drawing; shares are over all steps."""
    cosine = list(history.get("cosine", ()))
    known = [c for c in cosine if c is not None and is_number(c)]
    uphill = uphill_shares(history)
    if not known and uphill is None:
        return None
    steps = list(history.get("step") or range(len(cosine)))
    every = max(1, math.ceil(len(cosine) / MAX_HISTORY_POINTS))
    return {
        "step": [_finite(s) for s in steps[: len(cosine) : every]],
        "cosine": [round(c, 4) if c is not None and is_number(c) else None for c in cosine[::every]],
        "every": every,
        "conflict": sum(c < 0 for c in known) / len(known) if known else None,
        "uphill": uphill,
    }


def uphill_shares(history: Mapping[str, Sequence[float | None]]) -> dict[str, Any] | None:
    """Share of steps that raised a loss; None if the history lacks the columns.

    Runs that re-evaluate both losses after each step count measured increases on the step's own batches, without
    rejected steps and intended increases of L_f. Other runs count steps with ⟨Δθ,f⟩ > 0 or ⟨Δθ,r⟩ > 0: momentum,
    weight decay and Adam act after the pivot, so a conflict-free gradient does not guarantee a conflict-free step.
    """
    forget: Sequence[float | None] = history.get("delta_forget", ())
    retain: Sequence[float | None] = history.get("delta_retain", ())
    if "retain_change" in history:
        forget, retain = really_changed(history)
    pairs = [(f, r) for f, r in zip(forget, retain, strict=False) if is_number(f) and is_number(r)]
    if not pairs:
        return None
    n = len(pairs)
    return {
        "forget": sum((f or 0) > 0 for f, _ in pairs) / n,
        "retain": sum((r or 0) > 0 for _, r in pairs) / n,
        "either": sum((f or 0) > 0 or (r or 0) > 0 for f, r in pairs) / n,
        "steps": n,
    }


def verdict(comparison: Comparison) -> str:
    """One sentence on how much the first γ method (or the closest method) forgets and keeps, and which is closest."""
    if not any(f.points for f in comparison.frontiers):
        return "No method has been run yet; the page shows the original model only."
    named = zip(rows(comparison)[-len(comparison.frontiers) :], comparison.frontiers, strict=True)
    methods = [(row, row.scores, frontier.knob) for row, frontier in named if row.scores]
    recommended = comparison.provenance.get("quick", {}).get("recommended")
    if not any(row.delta is not None for row, *_ in methods) and recommended:
        return f"Recommended without a retrained model: {recommended['reason']}."
    if not methods:
        return _unjudged(comparison)
    distances = [(row.delta, row.name) for row, *_ in methods if row.delta is not None]
    best = min(distances)[1] if distances else methods[0][0].name
    walked = [m for m in methods if m[2] == "gamma"] or [m for m in methods if m[0].name == best]
    row, scores, _ = walked[0]
    retrained = comparison.retrained.classification if comparison.retrained else None
    words = verdict_point(scores, comparison.problem, retrained)
    # A run without a knob is named by its label, which starts with the method's name.
    is_label = row.setting.startswith(f"{row.name}(")
    run = row.setting if is_label else f"{row.name} at {row.setting}"
    return f"{run} {words}{_standing(row.name, distances)}."


def _unjudged(comparison: Comparison) -> str:
    if all(p.diverged for f in comparison.frontiers for p in f.points):
        return "All runs diverged, so there is nothing to recommend."
    return (
        "Scores of this forget set are judged by their gap to a retrained model, and there is none. Run Retrain, or a "
        "quick trace, which recommends a run without one."
    )


def _standing(name: str, distances: Sequence[tuple[float, str]]) -> str:
    if not distances:
        return ""
    delta, best = min(distances)
    own = next(d for d, other in distances if other == name)
    gap = f"Δ {number(100 * delta, 1)} points"
    if len(distances) == 1:
        return f", {gap} from the retrained model"
    if own == delta:
        return f"; it is the closest of {len(distances)} methods to the retrained model ({gap})"
    return f"; {best} is closest to the retrained model ({gap})"


def missing_parts(comparison: Comparison) -> list[str]:
    """Notes on what the comparison lacks and which parts of the page are therefore missing."""
    runs = [p for f in comparison.frontiers for p in f.points]
    walked = [f for f in comparison.frontiers if f.knob == "gamma" and f.points]
    lost = sum(p.diverged is not None for p in runs)
    found = []
    if comparison.retrained is None:
        found.append("Δ and the star in the chart are missing: there is no retrained model. Run Retrain to get them.")
    if not runs:
        found.append("No method has been run yet; the page shows the original model only.")
    elif not walked:
        found.append("The γ slider and its charts are missing: no method varies γ. Trace CUP to get them.")
    elif all(len(f.points) == 1 for f in walked):
        found.append("The slider is fixed: there is only one value of γ. Trace more values.")
    if lost:
        every = "All" if lost == len(runs) else f"{lost} of {len(runs)}"
        found.append(f"{every} runs diverged. They count as zeros and are marked with a cross.")
    if walked and not any(history_view(p.history) for f in walked for p in f.points):
        found.append("The conflict chart is empty: no run recorded its gradients.")
    return found
