"""Decision regions of the two-dimensional toy example, as in the paper's Figure 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.report.common.canvas import INK, MUTED, PALETTE, blank_figure, read_panels, thin_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "toy_figure"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One model's decision regions and the data.

    Attributes:
        title: Name of the model.
        grid_labels: Predicted class over the extent, rows from bottom to top: (height, width) integers.
        extent: Left, right, bottom, top of the grid.
        points: The data, (n, 2).
        labels: Their classes, (n,).
        caption: Text below, such as the accuracy of each class.
        forgotten: The forgotten class; its points are emphasised.
    """

    title: str
    grid_labels: Any
    extent: tuple[float, float, float, float]
    points: Any
    labels: Any
    caption: str = ""
    forgotten: int | None = None


def toy_figure(panels: Sequence[Panel | Mapping[str, Any]]) -> Figure:
    """Draw the panels in a row: regions in pale colours, data on top, the forgotten class ringed.

    Raises:
        GradPivotError: if there are no panels or one lacks a field.
    """
    known = read_panels(Panel, panels, "toy figure")
    figure = blank_figure(2.5 * len(known), 3.2)
    axes = figure.subplots(1, len(known), squeeze=False)[0]
    for letter, ax, panel in zip("abcdefghijklmnop", axes, known, strict=False):
        _draw_panel(ax, panel, f"({letter}) {panel.title}")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=8, frameon=False, fontsize=8,
                  handletextpad=0.2, markerscale=1.3)  # fmt: skip
    return figure


def _draw_panel(ax: Axes, panel: Panel, title: str) -> None:
    import numpy as np
    from matplotlib.colors import BoundaryNorm, ListedColormap

    points, labels = np.asarray(panel.points), np.asarray(panel.labels)
    grid = np.asarray(panel.grid_labels)
    count = int(max(labels.max(initial=0), grid.max())) + 1
    colours = [PALETTE[i % len(PALETTE)] for i in range(count)]
    scale = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    ax.imshow(grid, extent=panel.extent, origin="lower", cmap=ListedColormap(colours), norm=scale, alpha=0.22,
              aspect="auto", interpolation="nearest")  # fmt: skip
    for label in range(count):
        chosen = labels == label
        if chosen.any():
            _draw_class(ax, points[chosen], label, colours[label], forgotten=label == panel.forgotten)
    ax.set(xlim=panel.extent[:2], ylim=panel.extent[2:])
    ax.set_box_aspect(1)
    thin_frame(ax)
    ax.set_title(title, fontsize=9.5, color=INK)
    ax.set_xlabel(panel.caption, fontsize=7.5, color=MUTED)


def _draw_class(ax: Axes, points: Any, label: int, colour: str, *, forgotten: bool) -> None:
    name = f"class {label}" + (" (to forget)" if forgotten else "")
    ring: dict[str, Any] = {"s": 26, "edgecolors": INK, "linewidths": 1.0, "zorder": 4}
    plain: dict[str, Any] = {"s": 9, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}
    ax.scatter(points[:, 0], points[:, 1], color=[colour], marker="o", label=name,
               **(ring if forgotten else plain))  # fmt: skip
