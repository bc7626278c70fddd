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
    return f"CUP, γ = {settings['gamma']:g}" + (", frozen BatchNorm" if _is_frozen(record) else "")


def _is_frozen(record: Record) -> bool:
    return bool(record.point.settings["batchnorm"] == "frozen")


def _distance(record: Record, reference: tuple[float, ...]) -> float:
    scores = record.point.scores.vector(_METRICS)
    return float(sum((a - b) ** 2 for a, b in zip(scores, reference, strict=True)) ** 0.5)


def _row(name: str, record: Record, reference: tuple[float, ...]) -> tuple[str, ...]:
    minutes = "–" if record.role == "original" else f"{record.point.seconds / 60:.0f}"
    scores = record.point.scores.vector(_METRICS)
    return name, *map(percent, scores), percent(_distance(record, reference)), minutes


def _values(records: Records) -> dict[str, str]:
    printed = [r for r in records.runs("cifar10-class") if r.protocol == "paper"]
    found = [*records.runs("cifar10-class-cup"), *printed]
    original = next(r for r in found if r.role == "original")
    runs = sorted((r for r in found if r.role == "run"), key=lambda r: (r.protocol, _label(r)))
    reference = _reference(standings([original, *runs]).tables[0])
    rows = [_row("original", original, reference), *(_row(_label(r), r, reference) for r in runs)]
    rows.append(("the paper's retrained model", *map(percent, reference), "0.00", "–"))
    ours = {_label(r): r for r in runs}
    named = {"frozen": "CUP, γ = 1, frozen BatchNorm", "default": "CUP, γ = 1", "part": "CUP, γ = 0.9"}
    return {
        **{f"{key}_delta": percent(_distance(ours[name], reference)) for key, name in named.items()},
        **{f"{key}_ua": percent(ours[name].point.scores.ua, 1) for key, name in named.items()},
        "about": records.about("cifar10-class-cup"),
        "printed_about": records.about("cifar10-class"),
        "table": markdown(("model", "RA %", "UA %", "TA %", "MIA %", "Δ, points", "minutes"), rows),
    }


def _reference(table: Table) -> tuple[float, ...]:
    """The paper's retrained model, which stands in for one of ours."""
    point = next(s.frontier.reference for row in table.series for s in row.sets)
    assert point is not None
    return tuple(point.vector(_METRICS))


PAGE = Page(name="cifar10-class", values=_values)
