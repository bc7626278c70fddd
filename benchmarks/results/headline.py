"""The headline: what CUP, the best other method and retraining do with a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.records import keeps_accuracy
from benchmarks.results import depth, generators
from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent, table_for

from gradpivot.results import Series

__all__ = ["PAGE"]

_SCORES = ("ra", "ua", "ta")
_SWEEPS = {
    "class 3 of digits": ("digits", "class"),
    "a random tenth of digits": ("digits", "random"),
    "class 3 of MNIST": ("mnist", "class"),
    "a random tenth of MNIST": ("mnist", "random"),
    "each class of 5,000 Fashion-MNIST images": ("fashion-classes", "class"),
    "class 0 of CIFAR-10, small ResNet": ("cifar10-small", "class"),
}
_RECORDS = {
    "a tenth of digits, wrong labels among them": "records-digits",
    "a tenth of tables, wrong labels among them": "records-tabular",
    "1 % of digits": "records-few",
    "the most memorised 5 % of digits": "records-hardest",
    "a tenth of Fashion-MNIST": "records-fashion",
}
_DEPTH = {"digits, class 3": "depth-digits", "MNIST, class 3": "depth-mnist", "CIFAR-10, class 0": "depth-cifar10"}
_STEPS = 100
_DEEP = 0.01
"""Largest share of a class that may come back in the choice of the best other method."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One request; gaps are distances to the retrained model, and ``tied`` says that noise may explain their order."""

    request: str
    cup: str
    other: str
    retrained: str
    gaps: tuple[float, float]
    tied: bool

    @property
    def cells(self) -> tuple[str, ...]:
        leads = "tied" if self.tied else "yes" if self.gaps[0] <= self.gaps[1] else "**no**"
        return self.request, self.cup, self.other, self.retrained, leads


def _delta(series: Series) -> float:
    measure = series.measures["delta"]
    return float("inf") if measure is None else measure.over_sets.mean


def _scores(series: Series) -> str:
    found = (series.measures[name] for name in _SCORES)
    return " / ".join(percent(None if measure is None else measure.over_sets.mean, 1) for measure in found)


def _swept(found: Records, request: str, experiment: str, kind: str) -> _Row:
    """The runs of CUP and of the other method that come closest to the retrained model."""
    table = table_for(found.runs(experiment), kind, "clean")
    cup = next(series for series in table.series if series.name == "CUP")
    other = min((series for series in table.series if series is not cup), key=_delta)
    ranking = next(ranking for ranking in table.rankings if ranking.criterion == "delta")
    second = other.name if ranking.leader == "CUP" else "CUP"
    tied = any(rival.name == second and rival.verdict in ("tied", "undecided") for rival in ranking.rivals)
    assert table.retrained is not None

    def cell(series: Series) -> str:
        cost = "" if series.retrain_ratio is None else f", cost {series.retrain_ratio:.2f}"
        return f"Δ {percent(_delta(series))}; {_scores(series)}{cost}"

    return _Row(
        request=request, cup=cell(cup), other=f"{other.name}: {cell(other)}", retrained=_scores(table.retrained),
        gaps=(_delta(cup), _delta(other)), tied=tied,
    )  # fmt: skip


def _deleted(found: Records, request: str, experiment: str) -> _Row:
    """CUP at γ = 1 and the other method whose AUC is closest to retraining's, of those that keep TA."""
    rows = found.data(experiment)["rows"]
    retrained = next(row for row in rows if row["method"] == "Retrained")
    cup = next(row for row in rows if row["method"] == "CUP γ = 1")
    others = [row for row in rows if row["cost"] is not None and not row["method"].startswith(("CUP", "Retrained"))]

    def gap(row: dict[str, Any]) -> float:
        return abs(float(row["auc"] - retrained["auc"]))

    other = min((row for row in others if keeps_accuracy(row)), key=gap)

    def cell(row: dict[str, Any]) -> str:
        scores = " / ".join(percent(row[name], 1) for name in _SCORES)
        return f"AUC {row['auc']:.2f}; {scores}, cost {row['cost']:.2f}"

    return _Row(
        request=request, cup=cell(cup), other=f"{other['method']}: {cell(other)}", retrained=cell(retrained),
        gaps=(gap(cup), gap(other)), tied=abs(gap(cup) - gap(other)) <= max(cup["auc_error"], other["auc_error"]),
    )  # fmt: skip


def _table(rows: list[_Row]) -> str:
    heads = ("forgotten", "CUP", "best other method", "retrained", "does CUP lead?")
    return markdown(heads, (row.cells for row in rows))


def _depths(found: Records) -> str:
    """A class at γ = 1, and the other method with the highest TA among those that forget it for good."""
    rows = []
    for title, experiment in _DEPTH.items():
        data = found.data(experiment)

        def back(row: dict[str, Any], data: dict[str, Any] = data) -> float:
            return depth.worst(row, _STEPS, data["steps"])

        named = {row["method"]: row for row in data["rows"]}
        fixed = ("original", "retrained", "CUP γ = 1")
        others = [row for name, row in named.items() if not name.startswith(("CUP", "original", "retrained"))]
        deep = [row for row in others if row["ua"] >= 1 - _DEEP and back(row) <= _DEEP]
        best = max(deep, key=lambda row: row["ta"])
        for row in (*(named[name] for name in fixed), best):
            cost = "–" if row["cost"] is None else f"{row['cost']:.2f}"
            rows.append((title, row["method"], *(percent(row[s], 1) for s in _SCORES), percent(back(row), 1), cost))
    heads = ("problem", "model", "RA %", "UA %", "TA %", f"back after {_STEPS} steps %", "cost")
    return markdown(heads, rows)


def _values(found: Records) -> dict[str, str]:
    swept = [_swept(found, request, *where) for request, where in _SWEEPS.items()]
    deleted = [_deleted(found, request, experiment) for request, experiment in _RECORDS.items()]
    return {
        "swept": _table(swept),
        "deleted": _table(deleted),
        "depth": _depths(found),
        "generator": generators.headline(found),
    }


PAGE = Page(name="index", values=_values)
