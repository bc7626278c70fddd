"""Grids of generated images, one panel per model: forgotten classes in the first rows, the others below.

All panels use the same noise seeds, so that a class visibly dissolves as γ grows while the others stay.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures
from gradpivot.report.common.canvas import INK, MUTED, PALETTE, blank_figure, mpl_text

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SamplePanel", "blank_panel", "picture_panel", "row_order", "sample_figure", "sheet_file"]

MAX_SHEET_PIXELS = 1 << 24
"""Largest sheet to decode: about a thousand images of 128×128."""

_GAP = 1
"""Pixels between pictures."""


@dataclass(frozen=True, kw_only=True)
class SamplePanel:
    """Samples of one model.

    Attributes:
        title: Such as "Original" or "γ = 0.3".
        images: (rows, columns, c, h, w) in [0, 1], c = 1 or 3; one row per class, one column per noise seed.
        caption: Text below, such as the share of the forgotten class that is still recognised.
    """

    title: str
    images: Any
    caption: str = ""


def sheet_file(pictures: Pictures, name: str) -> bytes:
    """Decode a record's sheet to the bytes of its PNG file.

    Raises:
        GradPivotError: if it is not a PNG.
    """
    # Imports numpy, so only on first use.
    from gradpivot.data import png_size

    try:
        data = base64.b64decode(pictures.png, validate=True)
    except binascii.Error:
        raise GradPivotError(f"the sheet of {name!r} is not valid base64; repeat the run") from None
    png_size(data, f"the sheet of {name!r}")
    return data


def picture_panel(pictures: Pictures, title: str, caption: str = "") -> SamplePanel:
    """Turn a record's sheet into an RGB panel.

    Raises:
        GradPivotError: if the sheet is damaged, too large, or not a grid of its rows and columns.
    """
    from gradpivot.data import decode_rgb, png_size

    data, name = sheet_file(pictures, title), f"the sheet of {title!r}"
    width, height = png_size(data, name)
    rows, columns = len(pictures.rows), pictures.columns
    if width * height > MAX_SHEET_PIXELS:
        raise GradPivotError(f"{name} has {width}×{height} pixels; the limit is {MAX_SHEET_PIXELS:,} in total")
    if rows < 1 or columns < 1 or height % rows or width % columns:
        raise GradPivotError(
            f"{name} has {width}×{height} pixels, not divisible into {rows} rows and {columns} columns"
        )
    pixels = decode_rgb(data, width, height, name) / 255
    grid = pixels.reshape(rows, height // rows, columns, width // columns, 3)
    return SamplePanel(title=title, images=grid.transpose(0, 2, 4, 1, 3), caption=caption)


def blank_panel(like: SamplePanel, title: str, caption: str) -> SamplePanel:
    """An empty panel of the same shape, for a run without samples."""
    import numpy as np

    return SamplePanel(title=title, images=np.ones(np.shape(like.images)), caption=caption)


def row_order(classes: int, forgotten: Sequence[int]) -> list[int]:
    """Class of each row: forgotten classes first, then the others.

    Raises:
        GradPivotError: if a forgotten class is out of range.
    """
    outside = [c for c in forgotten if not 0 <= c < classes]
    if outside:
        raise GradPivotError(f"forgotten class is {outside[0]}; it must be between 0 and {classes - 1}")
    return [*forgotten, *(c for c in range(classes) if c not in forgotten)]


def sample_figure(panels: Sequence[SamplePanel], rows: Sequence[str], forgotten: int = 1) -> Figure:
    """Draw the panels side by side, at most four per line, with a frame around the forgotten rows.

    Args:
        panels: At least one, all of the same shape.
        rows: Row names from the top.
        forgotten: Number of rows at the top that show forgotten classes.

    Raises:
        GradPivotError: if there are no panels, or shapes and names do not match.
    """
    import numpy as np

    if not panels:
        raise GradPivotError("the sample figure needs at least one panel")
    grids = [np.asarray(panel.images, dtype=float) for panel in panels]
    shape = grids[0].shape
    if len(shape) != 5 or shape[2] not in (1, 3) or any(grid.shape != shape for grid in grids):
        shapes = ", ".join(str(grid.shape) for grid in grids)
        raise GradPivotError(
            f"sample panels have shapes {shapes}; all must have the same shape (rows, columns, 1 or 3 channels, "
            f"height, width)"
        )
    if len(rows) != shape[0] or not 0 <= forgotten <= shape[0]:
        raise GradPivotError(
            f"got {len(rows)} row names and {forgotten} forgotten rows for panels with {shape[0]} rows"
        )
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    width = 0.28 * shape[1] + 0.45
    figure = blank_figure(width * across + 0.3, down * (0.28 * shape[0] * shape[3] / shape[4] + 0.75))
    axes = figure.subplots(down, across, squeeze=False)
    for number, ax in enumerate(axes.flat):
        if number >= len(panels):
            ax.set_axis_off()
            continue
        _draw(ax, panels[number], grids[number], rows, forgotten, named=number % across == 0)
    return figure


def _draw(ax: Axes, panel: SamplePanel, grid: np.ndarray, rows: Sequence[str], forgotten: int, *, named: bool) -> None:
    from matplotlib.patches import Rectangle

    count, columns, _, height, width = grid.shape
    sheet = _sheet(grid)
    ax.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    centres = [_GAP + row * (height + _GAP) + (height - 1) / 2 for row in range(count)]
    ax.set(xticks=[], yticks=centres if named else [])
    if named:
        ax.set_yticklabels([mpl_text(row, 16) for row in rows], fontsize=7.5, color=INK)
        for label in ax.get_yticklabels()[:forgotten]:
            label.set_color(PALETTE[1])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if forgotten:
        frame = (columns * (width + _GAP) + _GAP, forgotten * (height + _GAP) + _GAP)
        ax.add_patch(Rectangle((-0.5, -0.5), *frame, fill=False, edgecolor=PALETTE[1], linewidth=1.6, clip_on=False))
    ax.set_title(mpl_text(panel.title), fontsize=9.5, color=INK)
    ax.set_xlabel(mpl_text(panel.caption), fontsize=7.5, color=MUTED)


def _sheet(grid: np.ndarray) -> np.ndarray:
    """All images on one white sheet, (height, width[, 3]), with a gap of one pixel around each."""
    import numpy as np

    rows, columns, channels, height, width = grid.shape
    sheet = np.ones((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, channels))
    for row in range(rows):
        for column in range(columns):
            top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
            sheet[top : top + height, left : left + width] = grid[row, column].transpose(1, 2, 0).clip(0, 1)
    return sheet[:, :, 0] if channels == 1 else sheet
