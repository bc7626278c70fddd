"""Two explanatory figures for the docs: what the hypervolume measures, and where g_γ points.

``python -m gradpivot.report.paper.explain DIR`` writes both as SVG and PNG.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradpivot.geometry import pivot_weights
from gradpivot.report.common.canvas import INK, MUTED, PALETTE, blank_figure, save_figure, style_axes
from gradpivot.report.common.plane import staircase
from gradpivot.results import hypervolume

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["hypervolume_figure", "main", "pivot_direction", "pivot_figure"]

Vector = tuple[float, float]

# Algorithm 2 is better in the middle, algorithm 1 covers more: a case in which a single point misleads.
DIVERSE: tuple[Vector, ...] = ((0.30, 0.97), (0.55, 0.92), (0.75, 0.80), (0.90, 0.58), (0.97, 0.28))
NARROW: tuple[Vector, ...] = ((0.72, 0.84), (0.76, 0.82), (0.79, 0.78))


def hypervolume_figure() -> Figure:
    """The area dominated by the models of two algorithms, which H measures."""
    figure = blank_figure(8.2, 4.0)
    axes = figure.subplots(1, 2, sharey=True)
    _draw_volume(axes[0], DIVERSE, PALETTE[0], "Algorithm 1: diverse models", y="UA: forgetting")
    _draw_volume(axes[1], NARROW, PALETTE[1], "Algorithm 2: similar models", y="")
    return figure


def _draw_volume(ax: Axes, points: Sequence[Vector], colour: str, title: str, *, y: str) -> None:
    style_axes(ax, x="RA: retention", y=y, title=title)
    for right, top in points:
        ax.fill([0, right, right, 0], [0, 0, top, top], color=colour, alpha=0.10, linewidth=0)
    ax.plot(*zip(*staircase(points), strict=True), color=colour, linewidth=1.2)
    ax.plot(*zip(*points, strict=True), "o", color=colour, markersize=7, markeredgecolor="white", clip_on=False)
    ax.plot(0, 0, "o", color=INK, markersize=5, clip_on=False)
    ax.annotate("reference point", (0, 0), (7, 7), textcoords="offset points", fontsize=8, color=INK)
    ax.text(0.36, 0.40, f"H = {hypervolume(points):.3f}", fontsize=15, color=colour, ha="center",
            fontweight="bold")  # fmt: skip
    ax.text(0.36, 0.33, "of the unit square", fontsize=8, color=INK, ha="center")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")


def pivot_direction(f: Vector, r: Vector, gamma: float) -> Vector:
    """g_γ = a·f + b·r for two gradients in the plane."""
    ff, rr, fr = math.hypot(*f) ** 2, math.hypot(*r) ** 2, f[0] * r[0] + f[1] * r[1]
    a, b = pivot_weights(ff, rr, fr, gamma)
    return a * f[0] + b * r[0], a * f[1] + b * r[1]


def pivot_figure() -> Figure:
    """The fan of g_γ for γ from 0 to 1 between the two anchors, with and without conflict."""
    figure = blank_figure(8.6, 3.9)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = figure.subplots(1, 2)
    _draw_pivot(axes[0], 130, 1.6, "Conflict: f and r are 130° apart")
    _draw_pivot(axes[1], 60, 1.0, "No conflict: f and r are 60° apart")
    scale = ScalarMappable(Normalize(0, 1), cmap="viridis_r")
    bar = figure.colorbar(scale, ax=list(axes), location="bottom", shrink=0.5, aspect=40, pad=0.04)
    bar.set_label("γ: 0 keeps, 1 forgets (the step is −λ·g)", fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return figure


def _draw_pivot(ax: Axes, angle: float, length: float, title: str) -> None:
    from matplotlib import colormaps

    half = math.radians(angle / 2)
    # Unequal lengths show that the anchors do not depend on them.
    f = (-length * math.sin(half), length * math.cos(half))
    r = (0.8 * length * math.sin(half), 0.8 * length * math.cos(half))
    reach = math.hypot(f[0] + r[0], f[1] + r[1])
    fan = [(gamma, pivot_direction(f, r, gamma)) for gamma in (i / 10 for i in range(11))]
    keep, forget = fan[0][1], fan[-1][1]
    _shade_cone(ax, keep, forget, 1.3 * reach)
    for gamma, g in fan:
        colour = colormaps["viridis_r"](gamma)
        _arrow(ax, g, colour, width=2.4 if gamma in (0, 1) else 1.3)
    _arrow(ax, f, PALETTE[1], width=2.2)
    _arrow(ax, r, PALETTE[0], width=2.2)
    _name(ax, f, "f, forget", PALETTE[1])
    _name(ax, r, "r, retain", PALETTE[0])
    _name(ax, keep, "γ = 0\n⊥ f", INK)
    _name(ax, forget, "γ = 1\n⊥ r", INK)
    ax.set_title(title, fontsize=9.5, loc="left", color=INK)
    ax.set(xlim=(-1.95, 1.95), ylim=(-0.1, 2.35), aspect="equal")
    ax.set_axis_off()


def _shade_cone(ax: Axes, keep: Vector, forget: Vector, radius: float) -> None:
    """Shade the dual cone: the directions along which neither loss rises. Its edges are the anchors."""
    start, end = (math.degrees(math.atan2(v[1], v[0])) for v in (keep, forget))
    from matplotlib.patches import Wedge

    ax.add_patch(Wedge((0, 0), radius, start, end, facecolor="#EEF1F4", edgecolor="none", zorder=0))
    middle = math.radians((start + end) / 2)
    ax.text(0.5 * radius * math.cos(middle), 1.05 * radius * math.sin(middle), "dual cone: neither loss rises",
            ha="center", va="bottom", fontsize=8, color=MUTED)  # fmt: skip


def _arrow(ax: Axes, tip: Vector, colour: object, *, width: float) -> None:
    ax.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": width,
                                             "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11})  # fmt: skip


def _name(ax: Axes, tip: Vector, text: str, colour: str) -> None:
    from matplotlib.patheffects import withStroke

    length = math.hypot(*tip)
    x, y = (c * (1 + 0.09 / length) for c in tip)
    side = "center" if abs(tip[0]) < 0.15 else "left" if tip[0] > 0 else "right"
    halo = [withStroke(linewidth=3, foreground="white")]  # without conflict f and r lie inside the fan
    ax.text(x, y, text, ha=side, va="center", fontsize=9, color=colour, path_effects=halo, zorder=6)


def main(argv: Sequence[str] | None = None) -> int:
    """Write both figures as SVG and PNG into the given folder."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m gradpivot.report.paper.explain DIR\n")
        return 2
    for name, figure in (("hypervolume", hypervolume_figure()), ("pivot", pivot_figure())):
        for suffix in (".svg", ".png"):
            save_figure(figure, Path(arguments[0]) / f"{name}{suffix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
