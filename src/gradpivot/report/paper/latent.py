"""Maps of a two-dimensional latent space, side by side, as in the paper's VAE figure, and the table beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.evaluate import GenerationScores
from gradpivot.report.common.canvas import INK, MUTED, blank_figure, read_panels, thin_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LatentPanel", "latent_figure", "latent_markdown"]

_TINT = (1.0, 0.80, 0.52)
"""Behind images that are still called the forgotten digit."""
_IN_A_ROW = 5


@dataclass(frozen=True, kw_only=True)
class LatentPanel:
    """One model's map.

    Attributes:
        title: Name of the model.
        images: (rows, columns, height, width) in [0, 1], the first row on top.
        marked: (rows, columns) booleans: which images the classifier calls the forgotten digit.
        caption: A line underneath.
    """

    title: str
    images: Any
    marked: Any
    caption: str = ""


def latent_figure(panels: Sequence[LatentPanel | Mapping[str, Any]], forgotten: int) -> Figure:
    """Draw the maps in rows of up to five: ink on white, and on a tint where the forgotten digit is still seen.

    Raises:
        GradPivotError: without a panel, or if one lacks a field.
    """
    known = read_panels(LatentPanel, panels, "latent figure")
    rows = math.ceil(len(known) / _IN_A_ROW)
    columns = math.ceil(len(known) / rows)
    figure = blank_figure(2.9 * columns, 3.25 * rows + 0.3)
    from matplotlib.patches import Patch

    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for letter, ax, panel in zip("abcdefghijklmnopqrstuvwxyz", axes, known, strict=False):
        _draw_panel(ax, panel, f"({letter}) {panel.title}")
    for ax in axes[len(known) :]:
        ax.set_axis_off()
    shown = Patch(facecolor=_TINT, edgecolor=MUTED, linewidth=0.5, label=f"the classifier calls it {forgotten}")
    figure.legend(handles=[shown], loc="outside lower center", frameon=False, fontsize=8.5)
    return figure


def _draw_panel(ax: Axes, panel: LatentPanel, title: str) -> None:
    ax.imshow(_mosaic(panel.images, panel.marked), interpolation="antialiased")
    thin_frame(ax)
    ax.set_title(title, fontsize=10, color=INK)
    ax.set_xlabel(f"$z_1$\n{panel.caption}", fontsize=8, color=INK)
    ax.set_ylabel("$z_2$", fontsize=8, color=INK)


def _mosaic(images: Any, marked: Any) -> Any:
    """One picture of all images, (height, width, 3): black ink on white or on the tint."""
    import numpy as np

    images, marked = np.asarray(images, dtype=float), np.asarray(marked, dtype=bool)
    rows, columns, height, width = images.shape
    paper = np.where(marked[..., None], _TINT, (1.0, 1.0, 1.0))
    coloured = (1 - images)[..., None] * paper[:, :, None, None]
    return coloured.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3)


def latent_markdown(summary: Mapping[str, Any]) -> str:
    """The table of a summary that ``gradpivot reproduce vae`` wrote: one row a model."""
    forgotten = summary["forgotten"]
    lines = [
        f"| model | map called {forgotten}, % | 95 % interval | −ELBO of the others, nats "
        f"| −ELBO of the {forgotten}s, nats | Fréchet distance (in-domain) | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_line(row, forgotten) for row in summary["models"]]
    told = next((row for row in summary["models"] if not row["diverged"]), None)
    notes = [
        f"Spearman's ρ of γ and the share called {forgotten}: "
        + ("–" if summary["spearman"] is None else f"{summary['spearman']:.2f}")
        + "."
    ]
    if told is not None:
        scores = GenerationScores.from_dict(told["scores"])
        distance = scores.frechet[0]
        notes.append(
            f"The map has N = {scores.n:,} images, equally likely under the prior; the classifier is right on "
            f"{100 * scores.classifier_accuracy:.2f} % of real test images. −ELBO on test images, the same noise for "
            f"every model. Fréchet distance by the features *{distance.features}*, N = {distance.n:,} against "
            f"{distance.n_reference:,} real images of the other digits; it compares with no FID by Inception."
        )
    return "\n".join([*lines, "", *notes]) + "\n"


def _line(row: Mapping[str, Any], forgotten: int) -> str:
    if row["diverged"]:
        return f"| {row['name']} | diverged: {row['diverged']['reason']} | – | – | – | – | {row['seconds']:.0f} |"
    scores = GenerationScores.from_dict(row["scores"])
    low, high = scores.class_interval(forgotten)
    return (
        f"| {row['name']} | {100 * scores.share_called(forgotten):.2f} | {100 * low:.2f} … {100 * high:.2f} "
        f"| {row['others_nats']:.1f} | {row['forgotten_nats']:.1f} | {scores.frechet[0].value:.3g} "
        f"| {row['seconds']:.0f} |"
    )
