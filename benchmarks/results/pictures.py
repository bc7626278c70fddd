"""Pictures that show what the library is for: the dial, and every method's runs on one plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.results.control import dial_points

from gradpivot.report.common.canvas import GRID, INK, MUTED, PALETTE, blank_figure, style_axes
from gradpivot.results import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["benefit_figure", "dial_figure"]

_NAMES = {"digits": "digits, class 3", "mnist": "MNIST, class 3", "cifar10": "CIFAR-10, class 0"}
_MARKERS = ("o", "s", "^")
_GREY = "#9AA2AB"


def dial_figure(problems: Mapping[str, Sequence[Record]]) -> Figure:
    """Asked against reached, in our defaults and as printed."""
    figure = blank_figure(8.4, 3.9)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_dial(left, problems)
    left.set_title("CUP in our defaults", fontsize=9.5, color=INK, loc="left")
    _draw_printed(right, problems)
    right.set_title("CUP as printed in the paper", fontsize=9.5, color=INK, loc="left")
    right.set_ylabel("")
    return figure


def benefit_figure(problems: Mapping[str, Sequence[Record]], methods: Sequence[Record]) -> Figure:
    """Left: forgetting reached against asked. Right: every run of every method, what it forgets and what it keeps."""
    figure = blank_figure(9.2, 4.1)
    left, right = figure.subplots(1, 2)
    _draw_dial(left, problems)
    left.set_title("Ask for a degree of forgetting, and get it", fontsize=10, color=INK, loc="left")
    _draw_methods(right, methods)
    right.set_title("Every run of 21 methods on digits", fontsize=10, color=INK, loc="left")
    return figure


def _draw_dial(ax: Axes, problems: Mapping[str, Sequence[Record]]) -> None:
    style_axes(ax, x="forgetting asked for, % of the class", y="forgetting reached, %")
    ax.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for colour, marker, (name, records) in zip(PALETTE, _MARKERS, problems.items(), strict=False):
        points = dial_points(records)
        xs, ys = [100 * p["asked"] for p in points], [100 * p["ua"] for p in points]
        ax.plot(xs, ys, marker, color=colour, markersize=5.5, label=_NAMES[name], alpha=0.9,
                markeredgecolor="white", markeredgewidth=0.5)  # fmt: skip
    ax.set(xlim=(-3, 103), ylim=(-3, 103))
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_printed(ax: Axes, problems: Mapping[str, Sequence[Record]]) -> None:
    style_axes(ax, x="forgetting asked for, % of the class", y="forgetting reached, %")
    ax.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for colour, marker, (name, records) in zip(PALETTE, _MARKERS, problems.items(), strict=False):
        points = dial_points(records, "paper")
        alive = [p for p in points if "ua" in p]
        ax.plot([100 * p["asked"] for p in alive], [100 * p["ua"] for p in alive], marker, color=colour,
                markersize=5.5, markeredgecolor="white", markeredgewidth=0.5, label=_NAMES[name])  # fmt: skip
        lost = [100 * p["asked"] for p in points if "ua" not in p]
        ax.plot(lost, [0.0] * len(lost), "x", color=colour, markersize=6)
    ax.text(0.98, 0.1, "×  every run diverged", transform=ax.transAxes, ha="right", fontsize=8, color=MUTED)
    ax.set(xlim=(-3, 103), ylim=(-3, 103))


def _draw_methods(ax: Axes, records: Sequence[Record]) -> None:
    style_axes(ax, x="forgotten: UA, %", y="kept: RA, %")
    runs = [r for r in records if r.role == "run" and r.kind == "class" and r.protocol == "clean"]
    groups = {
        f"{len({r.series for r in runs}) - 1} other methods": (
            [r for r in runs if r.method != "cup"],
            _GREY,
            3.5,
            0.55,
        ),
        "CUP, γ from 0 to 1": ([r for r in runs if r.method == "cup"], PALETTE[0], 6, 1.0),
    }
    for label, (found, colour, size, alpha) in groups.items():
        alive = [r.point.scores for r in found if not r.point.diverged]
        ax.plot([100 * s.ua for s in alive], [100 * s.ra for s in alive], "o", color=colour, markersize=size,
                alpha=alpha, label=label, markeredgecolor="white", markeredgewidth=0.4, linestyle="none")  # fmt: skip
    ax.axhline(100, color=GRID, linewidth=0.8, zorder=0)
    ax.set(xlim=(-3, 103), ylim=(-3, 105))
    ax.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(0.0, 0.12))
