"""Grids of generated pictures, a panel a model: the forgotten class in the first row, the others below it.

With the same noise seeds in every panel the eye can follow how a class dissolves as γ grows, and that the rest stays.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures
from gradpivot.report.common.canvas import INK, MUTED, PALETTE, blank_figure, plain

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SamplePanel", "blank_panel", "picture_panel", "row_order", "sample_figure", "sheet_file"]

MOST_PIXELS = 1 << 24
"""A sheet larger than this is not unpacked: a thousand pictures of 128×128."""

_GAP = 1
"""Pixels between pictures."""


@dataclass(frozen=True, kw_only=True)
class SamplePanel:
    """What one model draws.

    Attributes:
        title: Such as "Original" or "γ = 0.3".
        images: Rows × columns × c×h×w in [0, 1], c being 1 or 3: a row a class, a column a noise seed.
        caption: A line underneath, such as the share of the forgotten class that is still recognised.
    """

    title: str
    images: Any
    caption: str = ""


def sheet_file(pictures: Pictures, name: str) -> bytes:
    """The sheet that a record keeps, as a PNG file.

    Raises:
        GradPivotError: if it is none.
    """
    # numpy on first use, as everywhere in reports.
    from gradpivot.data import png_size

    try:
        data = base64.b64decode(pictures.png, validate=True)
    except binascii.Error:
        raise GradPivotError(f"the sheet of {name!r} is not base64; run it again") from None
    png_size(data, f"the sheet of {name!r}")
    return data


def picture_panel(pictures: Pictures, title: str, caption: str = "") -> SamplePanel:
    """The sheet that a record keeps as a panel, in three channels.

    Raises:
        GradPivotError: if the sheet is damaged, too large, or no grid of that many rows and columns.
    """
    from gradpivot.data import decode_rgb, png_size

    data, name = sheet_file(pictures, title), f"the sheet of {title!r}"
    width, height = png_size(data, name)
    rows, columns = len(pictures.rows), pictures.columns
    if width * height > MOST_PIXELS:
        raise GradPivotError(f"{name} has {width}×{height} pixels; at most {MOST_PIXELS:,} are drawn")
    if rows < 1 or columns < 1 or height % rows or width % columns:
        raise GradPivotError(
            f"{name} has {width}×{height} pixels, which is no grid of {rows} rows and {columns} columns"
        )
    pixels = decode_rgb(data, width, height, name) / 255
    grid = pixels.reshape(rows, height // rows, columns, width // columns, 3)
    return SamplePanel(title=title, images=grid.transpose(0, 2, 4, 1, 3), caption=caption)


def blank_panel(like: SamplePanel, title: str, caption: str) -> SamplePanel:
    """An empty sheet of the same shape, for a run that has drawn nothing: it is not left out."""
    import numpy as np

    return SamplePanel(title=title, images=np.ones(np.shape(like.images)), caption=caption)


def row_order(classes: int, forgotten: Sequence[int]) -> list[int]:
    """The classes by rows: those forgotten first, then the others.

    Raises:
        GradPivotError: if a forgotten class is none of them.
    """
    outside = [c for c in forgotten if not 0 <= c < classes]
    if outside:
        raise GradPivotError(f"class {outside[0]} is outside 0 … {classes - 1}")
    return [*forgotten, *(c for c in range(classes) if c not in forgotten)]


def sample_figure(panels: Sequence[SamplePanel], rows: Sequence[str], forgotten: int = 1) -> Figure:
    """Draw the panels side by side, four in a line at most; the forgotten rows are framed.

    Args:
        panels: At least one, all of the same shape.
        rows: What the rows are called, from the top.
        forgotten: How many of the first rows show what was to be forgotten.

    Raises:
        GradPivotError: without a panel, or if shapes and names do not fit.
    """
    import numpy as np

    if not panels:
        raise GradPivotError("the figure of samples needs at least one panel")
    grids = [np.asarray(panel.images, dtype=float) for panel in panels]
    shape = grids[0].shape
    if len(shape) != 5 or shape[2] not in (1, 3) or any(grid.shape != shape for grid in grids):
        shapes = ", ".join(str(grid.shape) for grid in grids)
        raise GradPivotError(
            f"panels of samples have the shapes {shapes}; each must be rows × columns × 1 or 3 channels × height × "
            f"width, and all the same"
        )
    if len(rows) != shape[0] or not 0 <= forgotten <= shape[0]:
        raise GradPivotError(f"there are {len(rows)} names and {forgotten} forgotten rows for {shape[0]} rows")
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
        ax.set_yticklabels([plain(row, 16) for row in rows], fontsize=7.5, color=INK)
        for label in ax.get_yticklabels()[:forgotten]:
            label.set_color(PALETTE[1])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if forgotten:
        frame = (columns * (width + _GAP) + _GAP, forgotten * (height + _GAP) + _GAP)
        ax.add_patch(Rectangle((-0.5, -0.5), *frame, fill=False, edgecolor=PALETTE[1], linewidth=1.6, clip_on=False))
    ax.set_title(plain(panel.title), fontsize=9.5, color=INK)
    ax.set_xlabel(plain(panel.caption), fontsize=7.5, color=MUTED)


def _sheet(grid: np.ndarray) -> np.ndarray:
    """All pictures on one white sheet, height × width (× 3), a gap of one pixel around each."""
    import numpy as np

    rows, columns, channels, height, width = grid.shape
    sheet = np.ones((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, channels))
    for row in range(rows):
        for column in range(columns):
            top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
            sheet[top : top + height, left : left + width] = grid[row, column].transpose(1, 2, 0).clip(0, 1)
    return sheet[:, :, 0] if channels == 1 else sheet
