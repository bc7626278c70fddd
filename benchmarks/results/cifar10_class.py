"""The paper's main experiment on a pretrained ResNet-18: CUP and WS on CIFAR-10, class 0."""

from __future__ import annotations

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.results import Record, Table, standings

__all__ = ["PAGE"]

_METRICS = ("ra", "ua", "ta", "mia")


def _label(record: Record) -> str:
    settings = record.point.settings
    if record.protocol == "paper":
        knob = f"γ = {settings['gamma']:g}" if record.method == "cup" else f"w_f = {settings['forget_weight']:g}"
        return f"{record.series} as printed, {knob}"
    kind = "CUP" if settings.get("dial") == "degree" else "CUP by angle"
    return f"{kind}, γ = {settings['gamma']:g}"


def _row(name: str, record: Record, reference: tuple[float, ...]) -> tuple[str, ...]:
    scores = record.point.scores.vector(_METRICS)
    gap = sum((a - b) ** 2 for a, b in zip(scores, reference, strict=True)) ** 0.5
    return name, *map(percent, scores), percent(gap)


def _values(records: Records) -> dict[str, str]:
    found = records.runs("cifar10-class")
    original = next(r for r in found if r.role == "original")
    runs = sorted((r for r in found if r.role == "run"), key=lambda r: (_label(r)[:8], _label(r)))
    tables = standings([original, *runs]).tables
    reference = _reference(tables[0])
    rows = [_row("original", original, reference), *(_row(_label(r), r, reference) for r in runs)]
    rows.append(("the paper's retrained model", *map(percent, reference), "0.00"))
    return {
        "about": records.about("cifar10-class"),
        "table": markdown(("model", "RA %", "UA %", "TA %", "MIA %", "Δ, points"), rows),
    }


def _reference(table: Table) -> tuple[float, ...]:
    """The paper's retrained model, which stands in for one of ours."""
    point = next(s.frontier.reference for row in table.series for s in row.sets)
    assert point is not None
    return tuple(point.vector(_METRICS))


PAGE = Page(name="cifar10-class", values=_values)
