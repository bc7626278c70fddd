"""Shared figure style: size, colours, axes, saving. Imports matplotlib on first use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gradpivot.errors import GradPivotError, install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GRID",
    "INK",
    "MARKERS",
    "MUTED",
    "PALETTE",
    "blank_figure",
    "legend",
    "mpl_text",
    "read_panels",
    "save_figure",
    "series",
    "show_message",
    "style_axes",
    "thin_frame",
]  # fmt: skip

PanelT = TypeVar("PanelT")

# Okabe & Ito (2008), safe for colour-blind readers; without their yellow, which is too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#5B5B5B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, MUTED, GRID = "#1F2328", "#6A737D", "#E3E6EA"


def series(index: int) -> tuple[str, str]:
    """Colour and marker of the index-th method; after seven methods the pairing shifts."""
    return PALETTE[index % 7], MARKERS[(index + index // 7) % 7]


def mpl_text(text: str, most: int = 60) -> str:
    """Escape a name for matplotlib: ``$`` would start math, a leading ``_`` would hide it from the legend."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    # A space, because not every font has a zero-width character.
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def blank_figure(width: float, height: float) -> Figure:
    """A new figure, sized in inches, outside pyplot's global state.

    Raises:
        GradPivotError: if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise GradPivotError(f"figures need matplotlib: {install_command('figures')}") from None
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style_axes(ax: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Apply the house style: light grid, two spines, small text."""
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
    """Draw a thin frame around an image and remove the ticks."""
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(MUTED)
        spine.set_linewidth(0.6)


def read_panels(kind: type[PanelT], panels: Sequence[PanelT | Mapping[str, Any]], name: str) -> list[PanelT]:
    """Build panels from panels or mappings of their fields.

    Raises:
        GradPivotError: if there are no panels or one lacks a field.
    """
    if not panels:
        raise GradPivotError(f"the {name} needs at least one panel")
    try:
        return [kind(**panel) if isinstance(panel, Mapping) else panel for panel in panels]
    except TypeError as error:
        raise GradPivotError(f"invalid panel for the {name}: {error}") from None


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Save a figure by its suffix: ``.pdf`` and ``.svg`` as vectors, ``.png`` at 200 dpi.

    The output is reproducible byte for byte.

    Raises:
        GradPivotError: for any other suffix.
    """
    path = Path(path)
    undated: dict[str, dict[str, Any]] = {
        ".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None},
    }  # fmt: skip
    if path.suffix.lower() not in undated:
        raise GradPivotError(f"cannot save a figure as {path.name!r}; use .pdf, .svg or .png")
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    # TrueType fonts: journals reject the default Type 3.
    with rc_context({"pdf.fonttype": 42, "svg.hashsalt": "gradpivot"}):
        figure.savefig(path, dpi=200, metadata=undated[path.suffix.lower()])
    return path


def legend(figure: Figure) -> None:
    """Draw one legend below all panels, taken from the first, in rows of equal length."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    if names:
        # About 16 letters per inch at this size, and half an inch per handle.
        most = max(1, min(6, int(figure.get_figwidth() / (0.55 + max(map(len, names)) / 16))))
        columns = math.ceil(len(names) / math.ceil(len(names) / most))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def show_message(figure: Figure, text: str) -> None:
    """Show a message in a figure that has nothing to draw."""
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, color=MUTED)
