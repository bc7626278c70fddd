"""Records: does unlearning single records mean what retraining means?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PAGE"]

_PROBLEMS = {
    "records-digits": "digits, a tenth of the labels wrong",
    "records-tabular": "tables, a tenth of the labels wrong",
    "records-fashion": "5,000 Fashion-MNIST images",
    "records-few": "digits, 1 % of the records",
    "records-hardest": "digits, the 5 % most memorised records",
}
_DRAWN = ("records-digits", "records-tabular")
_FIXED = ("epochs", "batch_size", "weight_decay", "max_epochs")
"""Settings that benchmarks/records.py does not search."""
_VARIANT = re.compile(r"CUP γ = 1, (?P<length>[\d.]+ % of the epochs)|CUP γ = 1, (?P<kept>s = [\d.]+)")
_BEST, _BY_GRADIENTS = "CUP γ = 1", "CUP γ = 1, gradients (shrink=1)"
_QUOTED = {
    _BEST: "best", _BY_GRADIENTS: "gradients", "CUP γ = 1, s = 0.3": "kept", "FT": "ft",
    "EU-k": "euk", "Retrained": "retrained",
}  # fmt: skip
"""Rows that the findings quote."""


def _table(found: dict[str, Any]) -> str:
    retrained = _row(found, "Retrained")
    return markdown(
        ("method", "U-LiRA AUC (± error)", "TPR at 1 % FPR %", "KLoM, nats", "UA %", "RA %", "TA %",
         "TA change, points", "cost"),
        (
            (_name(row), f"{row['auc']:.3f}" + (f" ± {row['auc_error']:.3f}" if row["auc_error"] else ""),
             percent(row["tpr"], 1), f"{row['klom']:.2f}", *(percent(row[name], 1) for name in ("ua", "ra", "ta")),
             f"{100 * (row['ta'] - retrained['ta']):+.1f}", "–" if row["cost"] is None else f"{row['cost']:.2f}")
            for row in found["rows"] if not _VARIANT.fullmatch(row["method"])
        ),
    )  # fmt: skip


def _variants(records: Records) -> str:
    """CUP at γ = 1 with shorter and longer restarts, and with more and less of the weights kept."""
    lines = []
    for name, title in _PROBLEMS.items():
        rows = {row["method"]: row for row in records.data(name)["rows"]}
        retrained = rows["Retrained"]
        for method, row in sorted(rows.items(), key=lambda item: _order(item[0])):
            if method != _BEST and not _VARIANT.fullmatch(method):
                continue
            changes = (f"{100 * (row[score] - retrained[score]):+.1f}" for score in ("ra", "ta"))
            setting = method.removeprefix(_BEST).removeprefix(", ") or "default"
            gap = f"{row['auc'] - retrained['auc']:+.3f} ± {row['auc_error']:.3f}"
            lines.append((title, setting, gap, *changes, f"{row['cost']:.2f}"))
    return markdown(("problem", "setting", "AUC", "RA, points", "TA, points", "cost"), lines)


def _order(method: str) -> tuple[int, float]:
    """The default, then by length, then by how much is kept."""
    found = _VARIANT.fullmatch(method)
    if not found:
        return 0, 0.0
    number = re.search(r"[\d.]+", found["length"] or found["kept"])
    assert number
    return (1 if found["length"] else 2), float(number[0])


def _name(row: dict[str, Any]) -> str:
    """The method, with the settings chosen for it if several were tried."""
    if row.get("tried", 1) == 1:
        return str(row["method"])
    searched = (part for part in re.findall(r"(\w+=[^,)]+)", row["settings"]) if part.split("=")[0] not in _FIXED)
    return f"{row['method']} ({', '.join(searched)})"


def _row(found: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["rows"] if row["method"] == name)
    return row


def _bars(records: Records) -> str:
    """CUP at γ = 1 beside retraining, one row per problem."""
    lines = []
    for name, title in _PROBLEMS.items():
        found = records.data(name)
        run, retrained, original = (_row(found, row) for row in (_BEST, "Retrained", "Original"))
        lines.append(
            (title, f"{original['auc']:.3f}", f"{run['auc']:.3f}", f"{retrained['auc']:.3f}", f"{run['auc_error']:.3f}",
             f"{100 * (run['tpr'] - retrained['tpr']):+.1f}", f"{100 * (run['ta'] - retrained['ta']):+.1f}",
             f"{100 * (run['ra'] - retrained['ra']):+.1f}", f"{run['cost']:.2f}")
        )  # fmt: skip
    return markdown(
        ("problem", "AUC original", "AUC CUP γ = 1", "AUC retrained", "error",
         *(f"{name}, points" for name in ("TPR", "TA", "RA")), "cost"),
        lines,
    )  # fmt: skip


def _exposed(records: Records) -> str:
    return markdown(
        ("problem", "original", "CUP γ = 1", "retrained"),
        (
            (title, *(f"{records.data(name)['exposed'][role]:.3f}" for role in ("original", "run", "retrained")))
            for name, title in _PROBLEMS.items()
        ),
    )


def _values(records: Records) -> dict[str, str]:
    values = {"bars": _bars(records), "exposed": _exposed(records), "variants": _variants(records)}
    errors = (_row(records.data(name), _BEST)["auc_error"] for name in _PROBLEMS if name != "records-few")
    values["error"] = f"{max(errors):.2f}"
    for name in _PROBLEMS:
        found, field = records.data(name), name.removeprefix("records-")
        values |= {
            f"{field}_about": records.about(name), f"{field}_table": _table(found),
            f"{field}_worlds": str(found["worlds"]), f"{field}_records": f"{found['n_forget']:,}",
            f"{field}_train": f"{found['n_train']:,}",
            f"{field}_error": f"{_row(found, _BEST)['auc_error'] or 0:.2f}",
        }  # fmt: skip
        for row in found["rows"]:
            if row["method"] in _QUOTED:
                key = f"{field}_{_QUOTED[row['method']]}"
                values |= {f"{key}_auc": f"{row['auc']:.2f}", f"{key}_ra": percent(row["ra"], 1),
                           f"{key}_cost": "–" if row["cost"] is None else f"{row['cost']:.2f}"}  # fmt: skip
    return values


def _write(axes: Axes, names: Sequence[tuple[float, float, str]]) -> None:
    """Names beside points; each moves down until it covers no earlier one."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    placed: list[tuple[float, float, float]] = []
    for x, y, name in sorted(names, key=lambda one: (-one[1], one[0])):
        at, height = y, (top - bottom) / 30
        width = 0.016 * len(name) * (right - left)
        while any(x < end and x + width > start and abs(at - other) < height for start, end, other in placed):
            at -= height / 4
        placed.append((x, x + width, at))
        axes.annotate(name, (x, at), xytext=(5, -2), textcoords="offset points", fontsize=7)


def _figures(records: Records) -> dict[str, Figure]:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(10, 4.4), layout="constrained")
    panels = figure.subplots(1, len(_DRAWN))
    for axes, name in zip(panels, _DRAWN, strict=True):
        found = records.data(name)
        names: list[tuple[float, float, str]] = []
        steered = [row for row in found["rows"] if re.fullmatch(r"CUP γ = [\d.]+", row["method"])]
        way = [_row(found, "Original"), *steered]
        axes.plot(
            [row["auc"] for row in way],
            [100 * row["ra"] for row in way],
            color="#0072b2",
            marker="o",
            label="CUP, γ from 0 to 1",
        )
        for row in found["rows"]:
            if row not in way and not _VARIANT.fullmatch(row["method"]):
                target = row["method"] == "Retrained"
                axes.plot(
                    row["auc"],
                    100 * row["ra"],
                    marker="*" if target else ".",
                    linestyle="",
                    markersize=14 if target else 8,
                    color="#009e73" if target else "#64748b",
                )
                names.append((row["auc"], 100 * row["ra"], row["method"].replace(_BY_GRADIENTS, "CUP by gradients")))
        _write(axes, names)
        axes.axvline(0.5, color="#cbd5e1", linewidth=1)
        axes.set(title=_PROBLEMS[name], xlabel="U-LiRA AUC (0.5: nobody can tell)")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("RA, %")
    panels[0].legend(frameon=False, loc="lower right")
    return {"records.png": figure}


PAGE = Page(name="records", values=_values, figures=_figures)
