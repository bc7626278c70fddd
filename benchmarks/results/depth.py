"""Depth: does a forgotten class come back under fine-tuning on retained data?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE", "worst"]

_PROBLEMS = {
    "depth-cifar10": "CIFAR-10, small ResNet with BatchNorm",
    "depth-mnist": "MNIST, small CNN",
    "depth-digits": "digits, small CNN",
}
_SHOWN = {
    "original": "#000000", "retrained": "#009e73", "CUP γ = 1": "#0072b2", "CUP γ = 1, batchnorm=frozen": "#d55e00",
    "WS": "#94a3b8", "GA": "#cc79a7",
}  # fmt: skip


def worst(row: dict[str, Any], step: int, steps: list[int]) -> float:
    """Share recognised after that many steps, in the worse BatchNorm mode, at the first rate."""
    rate = row["recovery"][0]["rate"]
    return max(float(c["recognised"][steps.index(step)]) for c in row["recovery"] if c["rate"] == rate)


def _table(found: dict[str, Any]) -> str:
    steps = found["steps"]
    return markdown(
        ("method", "RA %", "UA %", "TA %", *(f"after {step}" for step in steps), "relearn %", "‖θ − θ₀‖",
         "barrier, nats", "CKA", "cost"),
        (
            (row["method"], *(percent(row[name], 1) for name in ("ra", "ua", "ta")),
             *(percent(worst(row, step, steps), 1) for step in steps), percent(row["relearn"], 1),
             f"{row['distance']:.2f}", f"{row['barrier']:.2f}", f"{row['cka']:.2f}",
             "–" if row["cost"] is None else f"{row['cost']:.2f}")
            for row in found["rows"]
        ),
    )  # fmt: skip


def _row(found: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["rows"] if row["method"] == name)
    return row


def _values(records: Records) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in _PROBLEMS:
        found, field = records.data(name), name.removeprefix("depth-")
        values |= {f"{field}_about": records.about(name), f"{field}_table": _table(found)}
        values[f"{field}_passes"] = str(found["passes"])
        for key, method in {"cup": "CUP γ = 1", "retrained": "retrained", "original": "original"}.items():
            row = _row(found, method)
            values |= {f"{field}_{key}_{step}": percent(worst(row, step, found["steps"]), 1) for step in found["steps"]}
            values |= {f"{field}_{key}_{score}": percent(row[score], 1) for score in ("ra", "ua", "ta")}
    cifar = records.data("depth-cifar10")
    for key, method in {"frozen": "CUP γ = 1, batchnorm=frozen", "tuned": _TUNED}.items():
        row = _row(cifar, method)
        values |= {f"{key}_{step}": percent(worst(row, step, cifar["steps"]), 1) for step in cifar["steps"]}
        values |= {f"{key}_{score}": percent(row[score], 1) for score in ("ra", "ua", "ta")}
        values[f"{key}_cost"] = percent(row["cost"], 0)
    values["cup_cost"] = percent(_row(cifar, "CUP γ = 1")["cost"], 0)
    return values


_TUNED = "CUP γ = 1, then one epoch of fine-tuning"


def _figures(records: Records) -> dict[str, Figure]:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(12, 4), layout="constrained")
    panels = figure.subplots(1, len(_PROBLEMS), sharey=True)
    for axes, (name, title) in zip(panels, _PROBLEMS.items(), strict=True):
        found = records.data(name)
        for row in found["rows"]:
            if row["method"] in _SHOWN:
                shares = [100 * worst(row, step, found["steps"]) for step in found["steps"]]
                places = range(len(shares))
                axes.plot(places, shares, marker="o", label=row["method"], color=_SHOWN[row["method"]])
        axes.set_xticks(range(len(found["steps"])), [str(step) for step in found["steps"]])
        axes.set(title=title, xlabel="steps of fine-tuning on retained data")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("unseen images of the class recognised, %")
    # The middle of this panel is empty.
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].legend(handles, labels, frameon=False, loc="center")
    return {"depth.png": figure}


PAGE = Page(name="depth", values=_values, figures=_figures)
