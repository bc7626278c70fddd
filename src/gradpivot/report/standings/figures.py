"""Publication figures of standings: scores against γ, methods in the (RA, UA) plane, hypervolumes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.report.common.canvas import (
    GRID,
    INK,
    PALETTE,
    blank_figure,
    legend,
    mpl_text,
    series,
    show_message,
    style_axes,
)
from gradpivot.report.common.labels import Position
from gradpivot.report.common.plane import sample_evenly, staircase
from gradpivot.report.common.wording import MISSING, judged_by_gap
from gradpivot.report.standings.grids import ranked_measures
from gradpivot.report.standings.plane import Cloud, cloud, common_front, table_clouds, view_box
from gradpivot.report.standings.wording import others
from gradpivot.results import DialCurve, Series, Standings, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["dial_figure", "hypervolumes_figure", "methods_figure", "standings_figures", "versus_figure"]

MAX_DIALS = 4
_DASHED = (0, (3, 1.5))
# UA and MIA often coincide, and so do RA and TA: one of each pair is dashed.
_LINES = (("o", "-"), ("s", "-"), ("^", _DASHED), ("D", _DASHED))


def standings_figures(standings: Standings) -> dict[str, Figure]:
    """Every figure that has data, by a name fit for a file."""
    found: dict[str, Figure] = {}
    problems: dict[tuple[str, str], list[Table]] = {}
    for table in standings.tables:
        problems.setdefault((table.problem, table.task), []).append(table)
    for (problem, task), tables in problems.items():
        stem = _file_name(f"{problem} {task}")
        found[f"{stem}-hypervolumes"] = hypervolumes_figure(tables)
        walked = dict.fromkeys(row.name for table in tables for row in table.series if row.dials)
        for name in walked:
            found[f"{stem}-gamma-{_file_name(name)}"] = dial_figure(tables, name)
        for table in tables:
            protocol = _file_name(table.protocol) or "runs"
            found[f"{stem}-{protocol}-methods"] = methods_figure(table)
            if {"CUP", "WS"} <= {row.name for row in table.series}:
                found[f"{stem}-{protocol}-cup-ws"] = versus_figure(table, "CUP", "WS")
    return found


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def dial_figure(tables: Sequence[Table], name: str) -> Figure:
    """The scores behind H and Δ of one series against γ: one column per protocol, one row per dial.

    Lines are means over the finite runs of all classes and seeds, bands their 95 % Student intervals. A cross on
    the zero line marks a γ with diverged runs.
    """
    columns = [(table, _row(table, name)) for table in tables]
    shown = [(table, sample_evenly(row.dials if row else (), MAX_DIALS)) for table, row in columns]
    shown = [(table, found) for table, found in shown if found]
    height = max((len(found) for _, found in shown), default=1)
    figure = blank_figure(max(4.2, 3.6 * max(1, len(shown))), 0.9 + 2.3 * height)
    if not shown:
        show_message(figure, f"{mpl_text(name)} does not vary γ")
        return figure
    axes = figure.subplots(height, len(shown), squeeze=False, sharex=True, sharey=True)
    for column, (table, found) in enumerate(shown):
        for line in range(height):
            ax = axes[line][column]
            if line >= len(found):
                ax.set_axis_off()
                continue
            _draw_dial(ax, found[line], table)
            ax.set_title(_dial_title(table, found[line], first=line == 0), fontsize=9, loc="left", color=INK)
            ax.set_xlabel("γ, unlearning intensity" if line == len(found) - 1 else "", fontsize=9, color=INK)
            ax.set_ylabel("%" if column == 0 else "", fontsize=9, color=INK)
    figure.suptitle(
        mpl_text(f"{name} on {tables[0].problem}, {tables[0].task}"), fontsize=10, color=INK, x=0.02, ha="left"
    )
    legend(figure)
    return figure


def _row(table: Table, name: str) -> Series | None:
    return next((row for row in table.series if row.name == name), None)


def _dial_title(table: Table, dial: DialCurve, *, first: bool) -> str:
    parts = [f"{table.protocol} protocol"] if first and table.protocol else []
    settings = others(dial.others)
    if settings != MISSING:
        parts.append(settings)
    return mpl_text(", ".join([*parts, f"{dial.sets} sets"]))


def _draw_dial(ax: Axes, dial: DialCurve, table: Table) -> None:
    style_axes(ax)
    for colour, (marker, line), metric in zip(PALETTE, cycle(_LINES), standing_metrics(table.kind), strict=False):
        known = [(x, e) for x, e in zip(dial.values, dial.scores[metric], strict=True) if e]
        xs, means = [x for x, _ in known], [100 * e.mean for _, e in known]
        low = [100 * max(0.0, e.mean if e.low is None else e.low) for _, e in known]
        high = [100 * min(1.0, e.mean if e.high is None else e.high) for _, e in known]
        ax.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(xs, means, color=colour, marker=marker, markersize=4.5, linewidth=1.5, linestyle=line,
                label=find_metric(metric).symbol, markeredgecolor="white", markeredgewidth=0.5)  # fmt: skip
    lost = [x for x, n in zip(dial.values, dial.diverged, strict=True) if n]
    ax.plot(lost, [0.0] * len(lost), "x", color=INK, markersize=6, label="some runs diverged")
    ua = table.retrained.measures["ua"] if table.retrained else None
    if ua:
        ax.axhline(100 * ua.over_sets.mean, color=PALETTE[1], linewidth=1, linestyle=(0, (4, 3)),
                   label="UA, retrained", zorder=1)  # fmt: skip
    ax.set_ylim(-4, 104)


def versus_figure(table: Table, first: str, second: str) -> Figure:
    """Two series in the plane: all runs, and the front that half of the (class, seed) sets reach.

    The left panel shows the whole plane, the right one the region of the best means.
    """
    rows = [(i, row) for i, row in enumerate(table.series) if row.name in (first, second)]
    rows.sort(key=lambda pair: pair[1].name != first)
    clouds = [cloud(row) for _, row in rows]
    box = view_box(clouds)
    whole = box == (-3.0, 103.0)
    figure = blank_figure(5.2 if whole else 9.2, 4.5)
    axes = figure.subplots(1, 1 if whole else 2, squeeze=False)[0]
    for ax, limits, title in zip(axes, ((-3.0, 103.0), box), ("All runs", "Near the best means"), strict=False):
        _plane_axes(ax, table, title)
        for index, found in enumerate(clouds):
            _draw_runs(ax, found, index, label=True)
            ax.plot(*_percent(staircase(found.front)), color=series(index)[0], linewidth=1.8, zorder=4,
                    label=f"{mpl_text(found.name)}, reached by half of the sets")  # fmt: skip
        _draw_models(ax, table)
        ax.set(xlim=limits, ylim=(-3, 103))
    figure.suptitle(mpl_text(table.title), fontsize=10, color=INK, x=0.02, ha="left")
    legend(figure)
    return figure


def methods_figure(table: Table) -> Figure:
    """All series in the plane, one panel each; every panel shows the common front.

    Light points are single runs. Markers are means of one setting over classes and seeds (a diverged run counts
    as zeros). The line joins the Pareto-optimal means of all methods.
    """
    clouds = table_clouds(table)
    columns = min(4, max(1, math.ceil(math.sqrt(len(clouds)))))
    lines = max(1, math.ceil(len(clouds) / columns))
    figure = blank_figure(0.6 + 2.35 * columns, 1.0 + 2.15 * lines)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).flat
    front, (left, right) = common_front(clouds), view_box(clouds)
    corners = _percent(staircase([(s.x, s.y) for s in front]))
    owners = {id(setting) for setting in front}
    for index, ax in enumerate(axes):
        if index >= len(clouds):
            ax.set_axis_off()
            continue
        found = clouds[index]
        style_axes(ax)
        outside = sum(not left <= 100 * s.x <= right for s in found.settings)
        ax.set_title(_panel_title(found, outside), fontsize=8.5, loc="left", color=INK)
        _draw_runs(ax, found, index, label=False)
        ax.plot(*corners, color=INK, linewidth=1.1, zorder=3, label="Pareto front of all means")
        _draw_means(ax, found, index, owners)
        _draw_models(ax, table)
        ax.set(xlim=(left, right), ylim=(-3, 103))
        gap = "100 − gap" if judged_by_gap(table.kind) else ""
        ax.set_xlabel(f"RA{gap and f', {gap}'} (%)" if index + columns >= len(clouds) else "", fontsize=8.5)
        ax.set_ylabel(f"UA{gap and f', {gap}'} (%)" if index % columns == 0 else "", fontsize=8.5)
        # Shared axes show tick labels only in the last row, which may be incomplete.
        ax.tick_params(labelbottom=index + columns >= len(clouds))
    figure.suptitle(mpl_text(table.title), fontsize=10, color=INK, x=0.02, ha="left")
    legend(figure)
    return figure


def _panel_title(found: Cloud, outside: int) -> str:
    parts = [f"{found.diverged} diverged"] if found.diverged else []
    parts += [f"{outside} of {len(found.settings)} means outside"] if outside else []
    return mpl_text(found.name, 30) + (f"\n{', '.join(parts)}" if parts else "")


def _plane_axes(ax: Axes, table: Table, title: str) -> None:
    x, y = _axis_names(table)
    style_axes(ax, x=x, y=y, title=title)


def _axis_names(table: Table) -> tuple[str, str]:
    if judged_by_gap(table.kind):
        return "RA: 100 − gap to the retrained model (%)", "UA: 100 − gap to the retrained model (%)"
    return "RA: accuracy on the retain set (%)", "UA: error on the forget set (%)"


def _draw_runs(ax: Axes, found: Cloud, index: int, *, label: bool) -> None:
    colour, marker = series(index)
    lost = f" ({found.diverged} diverged)" if found.diverged else ""
    # Rasterised: tens of thousands of vector markers would make the file unusable.
    ax.plot([100 * r.x for r in found.runs], [100 * r.y for r in found.runs], marker if label else "o",
            color=colour, markersize=4 if label else 2.2, markeredgewidth=0, alpha=0.3, linestyle="none",
            zorder=2, rasterized=True, label=f"{mpl_text(found.name)} runs{lost}" if label else None)  # fmt: skip


def _draw_means(ax: Axes, found: Cloud, index: int, owners: set[int]) -> None:
    colour, marker = series(index)
    for own, edge, size in ((False, "white", 5.0), (True, INK, 6.5)):
        size += marker in "PX"  # thin shapes look smaller
        shown = [s for s in found.settings if (id(s) in owners) is own and s.diverged < s.runs]
        ax.plot([100 * s.x for s in shown], [100 * s.y for s in shown], marker, color=colour, markersize=size,
                markeredgecolor=edge, markeredgewidth=0.8, linestyle="none", zorder=4)  # fmt: skip


def _draw_models(ax: Axes, table: Table) -> None:
    spots: Mapping[str, Series | None] = {"original": table.original, "retrained": table.retrained}
    for (name, row), (marker, size) in zip(spots.items(), (("h", 8), ("*", 12)), strict=True):
        found = cloud(row) if row else None
        if found and found.settings:
            x = math.fsum(r.x for r in found.runs) / len(found.runs) if found.runs else 0.0
            y = math.fsum(r.y for r in found.runs) / len(found.runs) if found.runs else 0.0
            ax.plot(100 * x, 100 * y, marker, color=INK, markersize=size, markeredgecolor="white",
                    markeredgewidth=0.8, label=f"{name}, mean", zorder=5, linestyle="none")  # fmt: skip


def _percent(spots: Sequence[Position]) -> tuple[list[float], list[float]]:
    return [100 * x for x, _ in spots], [100 * y for _, y in spots]


def hypervolumes_figure(tables: Sequence[Table]) -> Figure:
    """H with and without MIA: one bar per method with its 95 % interval over sets, one panel per protocol.

    The dashed line is the retrained model's H.
    """
    names = list(dict.fromkeys(row.name for table in tables for row in table.series))
    figure = blank_figure(1.6 + 3.5 * len(tables), 1.3 + 0.46 * max(2, len(names)))
    axes = figure.subplots(1, len(tables), squeeze=False, sharey=True)[0]
    for ax, table in zip(axes, tables, strict=True):
        style_axes(ax, x="hypervolume × 100", title=mpl_text(f"{table.protocol or 'all'} protocol"))
        ax.grid(visible=False, axis="y")
        for offset, measure, colour, label in (
            (-0.2, "hypervolume", PALETTE[0], "H"), (0.2, "hypervolume_without_mia", PALETTE[4], "H without MIA"),
        ):  # fmt: skip
            if measure in ranked_measures(table.kind):
                _draw_bars(ax, table, names, offset, measure, colour, label)
        reference = table.retrained.measures["hypervolume"] if table.retrained else None
        if reference:
            ax.axvline(100 * reference.over_sets.mean, color=INK, linewidth=1, linestyle=(0, (4, 3)),
                       label="H, retrained", zorder=1)  # fmt: skip
        ax.set(xlim=(0, 118), ylim=(len(names) - 0.4, -0.6))
        ax.set_xticks([0, 25, 50, 75, 100])
        ax.set_yticks(range(len(names)), [mpl_text(name, 28) for name in names])
        ax.axvline(100, color=GRID, linewidth=0.8, zorder=0)
    problem = f"{tables[0].problem}, {tables[0].task}" if tables else ""
    figure.suptitle(mpl_text(problem), fontsize=10, color=INK, x=0.02, ha="left")
    legend(figure)
    return figure


def _draw_bars(
    ax: Axes, table: Table, names: Sequence[str], offset: float, measure: str, colour: str, label: str
) -> None:
    from matplotlib.patheffects import withStroke

    rows = [(names.index(row.name), m.over_sets) for row in table.series if (m := row.measures[measure])]
    at = [index + offset for index, _ in rows]
    ax.barh(at, [100 * e.mean for _, e in rows], height=0.36, color=colour, label=label, zorder=2)
    for y, (_, e) in zip(at, rows, strict=True):
        low, high = (100 * (e.mean if bound is None else bound) for bound in (e.low, e.high))
        ax.plot([max(0.0, low), high], [y, y], color=INK, linewidth=1.4, solid_capstyle="butt", zorder=3)
        ax.text(
            max(high, 0.0) + 1.5,
            y,
            f"{100 * e.mean:.1f}",
            va="center",
            fontsize=6.5,
            color=INK,
            zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
