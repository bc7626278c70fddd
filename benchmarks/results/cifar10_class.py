"""The paper's main experiment on a pretrained ResNet-18: CUP and WS on CIFAR-10, class by class."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.results import Record, Table, standings

__all__ = ["PAGE"]

_METRICS = ("ra", "ua", "ta", "mia")
_CLASSES = ("0", "3", "8")


def _label(record: Record) -> str:
    settings = record.point.settings
    if record.protocol == "paper":
        knob = f"γ = {settings['gamma']:g}" if record.method == "cup" else f"w_f = {settings['forget_weight']:g}"
        return f"{record.series} as printed, {knob}"
    return f"CUP, γ = {settings['gamma']:g}"


def _distance(record: Record, reference: tuple[float, ...]) -> float:
    scores = record.point.scores.vector(_METRICS)
    return float(sum((a - b) ** 2 for a, b in zip(scores, reference, strict=True)) ** 0.5)


def _row(name: str, record: Record, reference: tuple[float, ...]) -> tuple[str, ...]:
    scores = record.point.scores.vector(_METRICS)
    minutes = "–" if record.role == "original" else f"{record.point.seconds / 60:.0f}"
    return record.forget, name, *map(percent, scores), percent(_distance(record, reference)), minutes


def _rows(found: Sequence[Record]) -> tuple[list[tuple[str, ...]], tuple[float, ...]]:
    """The original and the runs on one class, and the paper's retrained model."""
    original = next(r for r in found if r.role == "original")
    runs = sorted((r for r in found if r.role == "run"), key=lambda r: (r.protocol, _label(r)))
    reference = _reference(standings([original, *runs]).tables[0])
    rows = [_row("original", original, reference), *(_row(_label(r), r, reference) for r in runs)]
    rows.append((original.forget, "the paper's retrained model", *map(percent, reference), "0.00", "–"))
    return rows, reference


def _values(records: Records) -> dict[str, str]:
    printed = [r for r in records.runs("cifar10-class") if r.protocol == "paper"]
    found = [*records.runs("cifar10-class-cup"), *printed]
    rows, values = [], {}
    for name in _CLASSES:
        here, reference = _rows([r for r in found if r.forget == name])
        rows += here
        best = next(r for r in found if r.forget == name and r.protocol == "clean" and r.point.knob == 1)
        values |= {f"delta_{name}": percent(_distance(best, reference)), f"ua_{name}": percent(best.point.scores.ua, 1)}
    return {
        **values,
        "about": records.about("cifar10-class-cup"),
        "printed_about": records.about("cifar10-class"),
        "table": markdown(("class", "model", "RA %", "UA %", "TA %", "MIA %", "Δ, points", "minutes"), rows),
    }


def _reference(table: Table) -> tuple[float, ...]:
    """The paper's retrained model, which stands in for one of ours."""
    point = next(s.frontier.reference for row in table.series for s in row.sets)
    assert point is not None
    return tuple(point.vector(_METRICS))


PAGE = Page(name="cifar10-class", values=_values)
