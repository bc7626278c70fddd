"""The look that all figures share: size, colours, axes, saving. matplotlib is imported on first use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gradpivot.errors import GradPivotError, to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GRID", "INK", "MARKERS", "MUTED", "PALETTE", "blank_figure", "legend", "plain", "quiet_axes", "read_panels",
    "save_figure", "say", "series", "thin_frame",
]  # fmt: skip

PanelT = TypeVar("PanelT")

# Okabe & Ito (2008), told apart with every common colour blindness; their yellow is too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#5B5B5B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, MUTED, GRID = "#1F2328", "#6A737D", "#E3E6EA"


def series(index: int) -> tuple[str, str]:
    """Colour and marker of the index-th method; after seven the pairs change, so that none repeats soon."""
    return PALETTE[index % 7], MARKERS[(index + index // 7) % 7]


def plain(text: str, most: int = 60) -> str:
    """A name as matplotlib shows it: no ``$`` starts mathematics, no leading ``_`` hides it from the legend."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    # A zero-width character would do for the underscore, but not every font has one.
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def blank_figure(width: float, height: float) -> Figure:
    """A figure of its own, in inches, that no global state knows.

    Raises:
        GradPivotError: if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise GradPivotError(f"figures need matplotlib: {to_install('figures')}") from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def quiet_axes(ax: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Light grid, two spines, small text: the data is what should be seen."""
    ax.grid(color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
        ax.spines[side].set_linewidth(0.8)
    ax.tick_params(colors=MUTED, labelcolor=INK, labelsize=8, width=0.8, length=3)
    ax.set_xlabel(x, color=INK, fontsize=9)
    ax.set_ylabel(y, color=INK, fontsize=9)
    ax.set_title(title, color=INK, fontsize=9.5, loc="left", pad=8)


def thin_frame(ax: Axes) -> None:
    """A hairline around a picture, without ticks."""
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(MUTED)
        spine.set_linewidth(0.6)


def read_panels(kind: type[PanelT], panels: Sequence[PanelT | Mapping[str, Any]], name: str) -> list[PanelT]:
    """Panels from themselves or from mappings of their fields.

    Raises:
        GradPivotError: without a panel, or if one lacks a field.
    """
    if not panels:
        raise GradPivotError(f"the {name} needs at least one panel")
    try:
        return [kind(**panel) if isinstance(panel, Mapping) else panel for panel in panels]
    except TypeError as error:
        raise GradPivotError(f"a panel of the {name} cannot be read: {error}") from None


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure by its suffix: ``.pdf`` and ``.svg`` as vectors, ``.png`` at 200 dpi.

    The same figure gives the same bytes, so that files under version control change only with their content.

    Raises:
        GradPivotError: for another suffix.
    """
    path = Path(path)
    undated: dict[str, dict[str, Any]] = {
        ".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None},
    }  # fmt: skip
    if path.suffix.lower() not in undated:
        raise GradPivotError(f"cannot save a figure as {path.name!r}; use .pdf, .svg or .png")
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    # Fonts as TrueType: journals refuse the default Type 3.
    with rc_context({"pdf.fonttype": 42, "svg.hashsalt": "gradpivot"}):
        figure.savefig(path, dpi=200, metadata=undated[path.suffix.lower()])
    return path


def legend(figure: Figure) -> None:
    """One legend for all panels, from the first, in rows of equal length under them."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    if names:
        # About 16 letters an inch at this size, and half an inch for each handle.
        most = max(1, min(6, int(figure.get_figwidth() / (0.55 + max(map(len, names)) / 16))))
        columns = math.ceil(len(names) / math.ceil(len(names) / most))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def say(figure: Figure, text: str) -> None:
    """Words where there is nothing to draw."""
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, color=MUTED)
