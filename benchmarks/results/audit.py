"""Audits: planted cases, and every method against shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.results import QUESTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE"]

_CLASS = "audit-digits-class"
_EXPECTED = {
    "original": "flagged",
    "retrained": "passes",
    "logit masked": "flagged on knowledge",
    "random labels memorised": "flagged on membership",
    "destroyed": "flagged on collateral",
}
_SHORT = {"indistinguishable": "=", "distinguishable": "≠", "undetermined": "?"}


def _outcomes(counts: dict[str, int]) -> str:
    """``=`` for one model; ``= 18, ? 2`` for several."""
    shown = [(sign, counts[name]) for name, sign in _SHORT.items() if counts.get(name)]
    return shown[0][0] if sum(counts.values()) == 1 else ", ".join(f"{sign} {count}" for sign, count in shown)


def _planted(found: dict[str, Any]) -> str:
    def caught(case: dict[str, Any]) -> str:
        names = sorted(case["caught_by"], key=lambda name: -case["caught_by"][name])
        return ", ".join(names[:3]) + (" …" if len(names) > 3 else "") if names else "–"

    return markdown(
        ("forgotten", "model", "should be", "membership", "knowledge", "collateral", "caught by"),
        (
            (case["forget"], case["case"], _EXPECTED[case["case"]],
             *(_outcomes(case["outcomes"][question]) for question in QUESTIONS), caught(case))
            for case in found["cases"]
        ),
    )  # fmt: skip


def _false_positives(found: dict[str, Any]) -> str:
    """Retrained models called distinguishable, per question."""
    cases = [case for case in found["cases"] if case["case"] == "retrained"]
    return ", ".join(
        f"{sum(case['outcomes'][question].get('distinguishable', 0) for case in cases)} on {question}"
        for question in QUESTIONS
    )


def _methods(found: dict[str, Any]) -> str:
    return markdown(
        ("method", "U-LiRA AUC (± error)", "TPR at 1 % FPR %", "KLoM, nats", "relearning, points",
         "fine-tuning, points", "UA %", "RA %", "TA change, points", "cost"),
        (_row(row) for row in found["rows"]),
    )  # fmt: skip


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    if "auc" not in row:
        return (row["method"], *["diverged"] * 9)

    def points(name: str) -> str:
        return "–" if row.get(name) is None else f"{100 * row[name]:+.1f}"

    return (
        row["method"], _auc(row), percent(row["tpr"], 1), f"{row['klom']:.2f}",
        points("relearn_5_difference"), points("finetune_difference"), percent(row["ua"], 1), percent(row["ra"], 1),
        points("ta_change"), "–" if row["cost"] is None else f"{row['cost']:.2f}",
    )  # fmt: skip


def _auc(row: dict[str, Any]) -> str:
    """The AUC with its error; the control has none, and a few worlds are too few for one."""
    has_error = row["method"] != "Retrained" and row["auc_error"] is not None
    return f"{row['auc']:.3f}" + (f" ± {row['auc_error']:.3f}" if has_error else "")


def _named(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in found["rows"] if row["method"] == name)


def _nearest(found: dict[str, Any]) -> str:
    """The two methods whose AUC is nearest to the retrained models', with their change of TA."""
    target = _named(found, "Retrained")["auc"]
    rows = [row for row in found["rows"][2:] if "auc" in row]
    best = sorted(rows, key=lambda row: abs(row["auc"] - target))[:2]
    return " and ".join(f"{row['method']} ({row['auc']:.2f}, TA {100 * row['ta_change']:+.1f} points)" for row in best)


def _values(records: Records) -> dict[str, str]:
    planted = records.data("audit-planted")
    values = {
        "about": records.about("audit-planted"),
        "planted": _planted(planted),
        "retrained": str(planted["seeds"]),
        "false_positives": _false_positives(planted),
    }
    found = records.data(_CLASS)
    return values | {
        "class_about": records.about(_CLASS),
        "table": _methods(found),
        "worlds": str(found["worlds"]),
        "records": str(found["n_forget"]),
        "nearest": _nearest(found),
        **{
            key: f"{_named(found, row)['auc']:.2f}" for key, row in {"original": "Original", "cup": "CUP γ = 1"}.items()
        },
    }


def _figures(records: Records) -> dict[str, Figure]:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for row in records.data(_CLASS)["rows"]:
        if "auc" in row:
            _mark(axes, row)
    axes.axvline(0.5, color="#64748b", linewidth=1, linestyle="--")
    axes.set(xlabel="U-LiRA AUC (0.5: not recognisable)", ylabel="TA minus retrained, points")
    axes.spines[["top", "right"]].set_visible(False)
    return {"audit.png": figure}


def _mark(axes: Any, row: dict[str, Any]) -> None:
    own = {"CUP γ = 1": "#0072b2", "CUP γ = 0.5": "#56b4e9", "Original": "#000000", "Retrained": "#009e73"}
    colour = own.get(row["method"], "#94a3b8")
    axes.errorbar(row["auc"], 100 * row["ta_change"], xerr=row["auc_error"], fmt="o", color=colour, zorder=3)
    if row["method"] in own:
        axes.annotate(row["method"], (row["auc"], 100 * row["ta_change"]), xytext=(5, 5), textcoords="offset points")


PAGE = Page(name="audit", values=_values, figures=_figures)
