"""Publication figures of a comparison: frontier, metrics against γ, gradient conflict over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.report.common.canvas import (
    INK,
    MUTED,
    PALETTE,
    blank_figure,
    legend,
    mpl_text,
    save_figure,
    series,
    show_message,
    style_axes,
)  # fmt: skip
from gradpivot.report.common.labels import Box, Position, clusters, place_labels
from gradpivot.report.common.plane import finite, plane_front, sample_evenly, zoom_box
from gradpivot.report.common.tables import with_reference
from gradpivot.report.common.wording import family, is_number, setting
from gradpivot.results import Comparison, Frontier, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["conflict_figure", "frontier_figure", "metrics_figure", "save_figure"]

Run = tuple[str, Mapping[str, Sequence[float | None]]]


def frontier_figure(comparison: Comparison) -> Figure:
    """All runs in the (RA, UA) plane; lines join each method's Pareto-optimal runs, labels give γ.

    The left panel shows the whole plane. The right one, if it helps, zooms into the runs with high RA and adds 95 %
    Wilson intervals. Diverged runs are a cross at the origin.
    """
    models = {"original": comparison.original}
    if comparison.retrained:
        models["retrained"] = comparison.retrained
    return _plane_figure([with_reference(f, comparison) for f in comparison.frontiers], models)


def _plane_figure(frontiers: Sequence[Frontier], models: Mapping[str, Point]) -> Figure:
    box = zoom_box(frontiers, list(models.values()))
    figure = blank_figure(9.2 if box else 5.2, 4.3)
    axes = figure.subplots(1, 2 if box else 1, squeeze=False)[0]
    _draw_plane(axes[0], frontiers, models, "All runs")
    axes[0].set(xlim=(-3, 103), ylim=(-3, 103))
    if box:
        _outline(axes[0], box)
        _draw_plane(axes[1], frontiers, models, "High RA, with 95 % intervals", intervals=True)
        axes[1].set(xlim=(box[0], box[2]), ylim=(box[1], box[3]))
    legend(figure)
    _annotate(figure, axes[-1], frontiers, list(models.values()))
    return figure


def _draw_plane(
    ax: Axes, frontiers: Sequence[Frontier], models: Mapping[str, Point], title: str, *, intervals: bool = False
) -> None:
    style_axes(ax, x="RA: accuracy on the retain set (%)", y="UA: error on the forget set (%)", title=title)
    for index, frontier in enumerate(frontiers):
        _draw_frontier(ax, frontier, index, intervals=intervals)
    for name, point in models.items():
        for p in finite([point]):
            marker, size = ("*", 13) if name == "retrained" else ("h", 9)
            ax.plot(
                100 * p.scores.ra, 100 * p.scores.ua, marker, color=INK, label=name, zorder=5,
                markersize=size, markeredgecolor="white", markeredgewidth=0.8,
            )  # fmt: skip


def _draw_frontier(ax: Axes, frontier: Frontier, index: int, *, intervals: bool) -> None:
    colour, marker = series(index)
    front, points = plane_front(frontier), finite(frontier.points)
    lost = len(frontier.points) - len(points)
    ax.plot(*_plane(front), color=colour, linewidth=1.4, zorder=2)
    label = mpl_text(frontier.name) + (f" ({lost} diverged)" if lost else "")
    ax.plot(*_plane(points), marker, color=colour, markersize=5.5, markeredgecolor="white",
            markeredgewidth=0.6, linestyle="none", label=label, zorder=3)  # fmt: skip
    if lost:
        ax.plot(0, 0, "x", color=colour, markersize=6 + 2 * index, markeredgewidth=1.2, zorder=3)
    for p in front if intervals else ():
        _whiskers(ax, p, colour)


def _plane(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [100 * p.scores.ra for p in points], [100 * p.scores.ua for p in points]


def _whiskers(ax: Axes, point: Point, colour: str) -> None:
    x, y = 100 * point.scores.ra, 100 * point.scores.ua
    left, right = (100 * bound for bound in point.scores.interval("ra"))
    low, high = (100 * bound for bound in point.scores.interval("ua"))
    ax.errorbar(
        x, y, xerr=[[max(0.0, x - left)], [max(0.0, right - x)]],
        yerr=[[max(0.0, y - low)], [max(0.0, high - y)]],
        color=colour, alpha=0.28, linewidth=1, linestyle="none", zorder=1,
    )  # fmt: skip


def _outline(ax: Axes, box: Box) -> None:
    from matplotlib.patches import Rectangle

    left, bottom, right, top = box
    ax.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor=MUTED,
                           linewidth=0.8, linestyle=(0, (3, 2)), zorder=4))  # fmt: skip


def _annotate(figure: Figure, ax: Axes, frontiers: Sequence[Frontier], models: Sequence[Point]) -> None:
    """Label the points of γ frontiers with γ, once the layout is final."""
    figure.draw_without_rendering()
    shown = [*finite(p for f in frontiers for p in f.points), *finite(models)]
    # Keep labels off the markers and off the lines, which are covered by small boxes.
    taken = [_square(spot, 6) for spot in _pixels(ax, shown)]
    for frontier in frontiers:
        corners = _pixels(ax, plane_front(frontier))
        taken += [_square(spot, 2) for a, b in pairwise(corners) for spot in _between(a, b)]
    for index, frontier in enumerate(frontiers):
        if frontier.knob == "gamma":
            taken += _label_points(ax, frontier, series(index)[0], taken)


def _pixels(ax: Axes, points: Sequence[Point]) -> list[Position]:
    spots = list(zip(*_plane(points), strict=True))
    return [(float(x), float(y)) for x, y in ax.transData.transform(spots)] if spots else []


def _square(spot: Position, half: float) -> Box:
    return spot[0] - half, spot[1] - half, spot[0] + half, spot[1] + half


def _between(a: Position, b: Position) -> list[Position]:
    steps = max(1, int(math.dist(a, b) / 4))
    return [(a[0] + (b[0] - a[0]) * i / steps, a[1] + (b[1] - a[1]) * i / steps) for i in range(steps + 1)]


def _label_points(ax: Axes, frontier: Frontier, colour: str, taken: Sequence[Box]) -> list[Box]:
    frame = ax.get_window_extent()
    bounds = (frame.x0, frame.y0, frame.x1, frame.y1)
    points = [p for p in finite(frontier.points) if p.knob is not None]
    pixels = [(float(x), float(y)) for x, y in ax.transData.transform(list(zip(*_plane(points), strict=True)))]
    inside = [i for i, (x, y) in enumerate(pixels)
              if bounds[0] <= x <= bounds[2] and bounds[1] <= y <= bounds[3]]  # fmt: skip
    groups = [[inside[i] for i in group] for group in clusters([pixels[i] for i in inside], radius=9)]
    texts = [_knob_text([points[i].knob for i in group]) for group in groups]
    sizes = [_text_size(ax, text) for text in texts]
    anchors = [pixels[group[0]] for group in groups]
    boxes: list[Box] = []
    for text, size, anchor, centre in zip(
        texts, sizes, anchors, place_labels(anchors, sizes, taken, bounds), strict=True
    ):
        if centre:
            _write(ax, text, colour, anchor, centre)
            boxes.append((centre[0] - size[0] / 2, centre[1] - size[1] / 2,
                          centre[0] + size[0] / 2, centre[1] + size[1] / 2))  # fmt: skip
    return boxes


def _knob_text(values: Sequence[float | None]) -> str:
    numbers = sorted(v for v in values if v is not None)
    if len(numbers) > 2:
        return f"γ {numbers[0]:g}…{numbers[-1]:g}"
    return "γ " + ", ".join(f"{v:g}" for v in numbers)


def _text_size(ax: Axes, text: str) -> tuple[float, float]:
    probe = ax.text(0, 0, text, fontsize=7.5)
    extent = probe.get_window_extent()
    probe.remove()
    return float(extent.width) + 3, float(extent.height) + 1


def _write(ax: Axes, text: str, colour: str, anchor: Position, centre: Position) -> None:
    from matplotlib.patheffects import withStroke

    dpi = ax.figure.dpi
    offset = (72 * (centre[0] - anchor[0]) / dpi, 72 * (centre[1] - anchor[1]) / dpi)
    far = math.dist(centre, anchor) > 34
    ax.annotate(
        text, tuple(ax.transData.inverted().transform(anchor)), xytext=offset, textcoords="offset points",
        ha="center", va="center", fontsize=7.5, color=colour, annotation_clip=True,
        path_effects=[withStroke(linewidth=2.5, foreground="white")], zorder=6,
        arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.4, "linewidth": 0.7} if far else None,
    )  # fmt: skip


def metrics_figure(comparison: Comparison) -> Figure:
    """The scores behind H and Δ against γ, one panel each, with 95 % Wilson intervals.

    The dashed line is the retrained model; a cross on the zero line is a diverged run.
    """
    walked = [(i, f) for i, f in enumerate(comparison.frontiers) if f.knob == "gamma"]
    standing = standing_metrics(comparison.kind)
    figure = blank_figure(2.3 * len(standing), 2.9)
    for ax, metric in zip(figure.subplots(1, len(standing)), standing, strict=True):
        described = find_metric(metric)
        title = f"{described.symbol}: {described.label}" if described.label else described.symbol
        style_axes(ax, x="γ, unlearning intensity", title=title, y="%" if metric == standing[0] else "")
        for index, frontier in walked:
            _draw_metric(ax, frontier, metric, index)
        if comparison.retrained:
            level = 100 * getattr(comparison.retrained.scores, metric)
            ax.axhline(level, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="retrained", zorder=1)
        ax.set_ylim(_accuracy_floor(comparison) if described.share_of in ("retain", "test") else -4, None)
        ax.set_ylim(top=100 + 0.04 * (100 - ax.get_ylim()[0]))
    if not walked:
        show_message(figure, "No method varies γ")
    legend(figure)
    return figure


def _accuracy_floor(comparison: Comparison) -> float:
    """Lower limit of the RA and TA panels: below zero, or higher if all runs are above 60 %."""
    runs = [p for f in comparison.frontiers if f.knob == "gamma" for p in f.points]
    if not runs or any(p.diverged for p in runs):
        return -4.0
    lowest = min((value for p in runs for value in (p.scores.ra, p.classification.ta) if is_number(value)), default=0.0)
    return 100 * lowest - 5 if lowest > 0.6 else -4.0


def _draw_metric(ax: Axes, frontier: Frontier, metric: str, index: int) -> None:
    colour, marker = series(index)
    known = [p for p in frontier.points if p.knob is not None]
    families = dict.fromkeys(family(frontier, p) for p in known)
    for number, name in enumerate(families):
        good = [p for p in known if not p.diverged and is_number(getattr(p.scores, metric))]
        good = sorted((p for p in good if family(frontier, p) == name), key=lambda p: p.knob or 0.0)
        x, y = [p.knob or 0.0 for p in good], [100 * getattr(p.scores, metric) for p in good]
        bounds = [p.scores.interval(metric) for p in good]
        ax.fill_between(x, [100 * low for low, _ in bounds], [100 * high for _, high in bounds],
                        color=colour, alpha=0.14 / len(families), linewidth=0)  # fmt: skip
        ax.plot(x, y, color=colour, marker=marker, markersize=4.5, linewidth=1.5, markeredgecolor="white",
                markeredgewidth=0.5, alpha=1 - 0.7 * number / len(families),
                label=mpl_text(f"{frontier.name}, {name}" if name else frontier.name))  # fmt: skip
    lost = [p.knob or 0.0 for p in known if p.diverged]
    ax.plot(lost, [0.0] * len(lost), "x", color=colour, markersize=6)


def conflict_figure(comparison: Comparison, most: int = 5) -> Figure:
    """The cosine of the two gradients over the steps, for up to ``most`` runs of the first γ frontier.

    Below zero the gradients conflict: a step that lowers one loss raises the other.
    """
    figure = blank_figure(6.4, 3.6)
    from matplotlib import colormaps  # after blank_figure, which raises if matplotlib is missing

    ax = figure.subplots()
    style_axes(ax, x="Step", y="cos ∠(f, r)", title="Do the forget and retain gradients conflict?")
    walked = [f for f in comparison.frontiers if f.knob == "gamma"][:1]
    runs = [
        (setting(f, p), p.history) for f in walked for p in f.points
        if any(is_number(c) for c in p.history.get("cosine", ()))
    ]  # fmt: skip
    for i, (label, history) in enumerate(sample_evenly(runs, most)):
        colour = colormaps["viridis"](0.05 + 0.85 * i / max(1, min(most, len(runs)) - 1))
        cosine = history["cosine"]
        steps = history.get("step") or list(range(len(cosine)))
        known = [(s, c) for s, c in zip(steps, cosine, strict=False) if is_number(s) and is_number(c)]
        ax.plot(*zip(*known, strict=True), color=colour, linewidth=1.3, label=mpl_text(label))
    ax.set_ylim(-1.05, 1.05)
    ax.axhline(0, color=INK, linewidth=0.9)
    ax.axhspan(-1.05, 0, color=PALETTE[1], alpha=0.05, linewidth=0)
    ax.text(0.01, 0.02, "below 0: conflict", transform=ax.transAxes, fontsize=8, color=PALETTE[1])
    legend(figure)
    if not runs:
        show_message(figure, "No run recorded the cosine of its gradients")
    return figure
