"""The paper's main experiment on a pretrained ResNet-18: CUP and WS on classes of CIFAR-10."""

from __future__ import annotations

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.results import Record, Table, standings

__all__ = ["PAGE"]

_METRICS = ("ra", "ua", "ta", "mia")
_NEAR = 0.02
"""A run this close to the retrained model is called near it."""


def _label(record: Record) -> str:
    if record.role == "original":
        return "original"
    settings = record.point.settings
    if record.protocol == "paper":
        knob = f"γ = {settings['gamma']:g}" if record.method == "cup" else f"w_f = {settings['forget_weight']:g}"
        return f"{record.series} as printed, {knob}"
    return f"CUP, γ = {settings['gamma']:g}"


def _distance(record: Record, reference: tuple[float, ...]) -> float:
    scores = record.point.scores.vector(_METRICS)
    return float(sum((a - b) ** 2 for a, b in zip(scores, reference, strict=True)) ** 0.5)


def _images(record: Record) -> int:
    """Images in the batches of a run: each forget image and another one, once per epoch."""
    return int(2 * record.point.settings["epochs"] * record.point.scores.n_forget)


def _row(record: Record, reference: tuple[float, ...]) -> tuple[str, ...]:
    runs = record.role != "original"
    seen, minutes = (f"{_images(record):,}", f"{record.point.seconds / 60:.0f}") if runs else ("–", "–")
    scores = record.point.scores.vector(_METRICS)
    return _label(record), record.forget, *map(percent, scores), percent(_distance(record, reference)), seen, minutes


def _near(runs: list[Record], reference: tuple[float, ...]) -> str:
    """Which default runs at γ = 0.9 and 1 end near the retrained model, and which do not."""
    wanted = [r for r in runs if r.protocol == "clean" and r.point.settings["gamma"] >= 0.9]
    named: dict[bool, list[str]] = {True: [], False: []}
    for record in wanted:
        distance = _distance(record, reference)
        named[distance <= _NEAR].append(
            f"class {record.forget} at γ = {record.point.settings['gamma']:g} ({percent(distance)})"
        )
    near, far = (", ".join(named[key]) for key in (True, False))
    text = f"{len(named[True])} of {len(wanted)} default runs at γ = 0.9 and 1 end within 2 points of it"
    return text + (f": {near}" if near else "") + (f". Further away: {far}." if far else ".")


def _values(records: Records) -> dict[str, str]:
    printed = [r for r in records.runs("cifar10-class") if r.protocol == "paper"]
    found = [*records.runs("cifar10-class-cup"), *printed]
    others = records.runs("cifar10-other-classes") if records.has("cifar10-other-classes.jsonl.gz") else []
    original = next(r for r in found if r.role == "original")
    runs = sorted((r for r in found if r.role == "run"), key=lambda r: (r.protocol, _label(r)))
    reference = _reference(standings([original, *runs]).tables[0])
    others = sorted(others, key=lambda r: (r.forget, r.role == "run"))
    rows = [_row(record, reference) for record in (original, *runs, *others)]
    rows.append(("the paper's retrained model", "mean", *map(percent, reference), "0.00", "–", "–"))
    ours = {_label(r): r for r in runs}
    named = {"default": "CUP, γ = 1", "part": "CUP, γ = 0.9"}
    heads = ("model", "class", "RA %", "UA %", "TA %", "MIA %", "Δ, points", "images", "minutes")
    return {
        **{f"{key}_delta": percent(_distance(ours[name], reference)) for key, name in named.items()},
        **{f"{key}_ua": percent(ours[name].point.scores.ua, 1) for key, name in named.items()},
        "about": records.about("cifar10-class-cup"),
        "printed_about": records.about("cifar10-class"),
        "near": _near([*runs, *(r for r in others if r.role == "run")], reference),
        "images": f"{_images(ours['CUP, γ = 1']):,}",
        "printed_images": f"{max(map(_images, printed)):,}",
        "table": markdown(heads, rows),
    }


def _reference(table: Table) -> tuple[float, ...]:
    """The paper's retrained model, which stands in for one of ours."""
    point = next(s.frontier.reference for row in table.series for s in row.sets)
    assert point is not None
    return tuple(point.vector(_METRICS))


PAGE = Page(name="cifar10-class", values=_values)
