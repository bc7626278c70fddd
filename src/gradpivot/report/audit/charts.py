"""Charts of the audit page as data for its script: ROC curves, tamper curves, bars by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradpivot.report.audit.wording import ROLES
from gradpivot.report.common.wording import is_number
from gradpivot.results import AuditRecord, Finding

__all__ = ["MAX_CLASSES", "audit_payload", "class_chart", "curve_charts", "roc_charts", "roc_floor"]

MAX_CLASSES = 20
"""Most classes in the bar chart; those with the largest shares are kept."""

_LOWEST_RATE = 1e-4


def audit_payload(record: AuditRecord) -> dict[str, Any]:
    """Data for the page's script."""
    bars = class_chart(record.sections.get("neighbours"))
    return {
        "roles": dict(ROLES),
        "rocs": roc_charts(record.attacks),
        "curves": curve_charts(record.attacks),
        "bars": [bars] if bars else [],
    }


def roc_charts(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """One log-log chart per finding with a ROC curve; rates of zero are drawn at the lowest rate shown."""
    charts = []
    for found in findings:
        curves = found.details.get("roc") or {}
        known = {role: _pairs(curves[role]["fpr"], curves[role]["tpr"]) for role in ROLES if curves.get(role)}
        if any(known.values()):
            floor = roc_floor(point for points in known.values() for point in points)
            raised = {role: [(max(floor, x), max(floor, y)) for x, y in points] for role, points in known.items()}
            series = [_series(role, points) for role, points in raised.items() if points]
            charts.append({"title": found.title, "floor": floor, "series": series})
    return charts


def roc_floor(points: Iterable[tuple[float, float]]) -> float:
    """The power of ten below the smallest positive rate, between 0.01 % and 10 %."""
    smallest = min((rate for point in points for rate in point if rate > 0), default=0.1)
    exponent = math.floor(math.log10(max(_LOWEST_RATE, smallest)) + 1e-9)
    return float(10.0 ** min(-1, exponent))


def curve_charts(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """One chart per finding with a curve; percentages for fractions."""
    charts = []
    for found in findings:
        curve = found.details.get("curve") or {}
        scale = 100.0 if found.unit == "%" else 1.0
        series = [
            _series(role, [(x, scale * y) for x, y in _pairs(curve.get("x") or (), curve[role])])
            for role in ROLES
            if curve.get(role)
        ]
        if series:
            labels = {"x": str(curve.get("x_label", "")), "y": str(curve.get("y_label", found.unit))}
            charts.append({"title": found.title, **labels, "series": series})
    return charts


def class_chart(shares: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Shares of the forgotten records by predicted class, in percent; None without data."""
    names = [str(name) for name in (shares or {}).get("classes") or ()]
    roles = [role for role in ROLES if shares and shares.get(role)]
    if not shares or not names or not roles:
        return None
    values = {role: [value if is_number(value) else 0.0 for value in shares[role]] for role in roles}
    ranked = sorted(range(len(names)), key=lambda i: -max(values[role][i] for role in roles))
    shown = sorted(ranked[:MAX_CLASSES])
    return {
        "classes": [names[i] for i in shown],
        "total": len(names),
        "series": [{"role": role, "y": [100 * values[role][i] for i in shown]} for role in roles],
    }


def _pairs(xs: Iterable[Any], ys: Iterable[Any]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(xs, ys, strict=False) if is_number(x) and is_number(y)]


def _series(role: str, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {"role": role, "x": [_short(x) for x, _ in points], "y": [_short(y) for _, y in points]}


def _short(value: float) -> float:
    return float(f"{value:.5g}")
