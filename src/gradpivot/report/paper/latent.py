"""Maps of a two-dimensional latent space, as in the paper's VAE figure, and their table."""

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

__all__ = ["LatentPanel", "latent_figure", "latent_markdown", "mosaic"]

_TINT = (1.0, 0.80, 0.52)
"""Background of images still classified as the forgotten digit."""
_IN_A_ROW = 5


@dataclass(frozen=True, kw_only=True)
class LatentPanel:
    """Latent map of one model.

    Attributes:
        title: Name of the model.
        images: (rows, columns, height, width) in [0, 1], the first row on top.
        marked: (rows, columns) booleans: images classified as the forgotten digit.
        caption: Text below.
    """

    title: str
    images: Any
    marked: Any
    caption: str = ""


def latent_figure(panels: Sequence[LatentPanel | Mapping[str, Any]], forgotten: int) -> Figure:
    """Draw the maps in rows of up to five; images still classified as the forgotten digit are tinted.

    Raises:
        GradPivotError: if there are no panels or one lacks a field.
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
    shown = Patch(facecolor=_TINT, edgecolor=MUTED, linewidth=0.5, label=f"classified as {forgotten}")
    figure.legend(handles=[shown], loc="outside lower center", frameon=False, fontsize=8.5)
    return figure


def _draw_panel(ax: Axes, panel: LatentPanel, title: str) -> None:
    ax.imshow(mosaic(panel.images, panel.marked), interpolation="antialiased")
    thin_frame(ax)
    ax.set_title(title, fontsize=10, color=INK)
    ax.set_xlabel(f"$z_1$\n{panel.caption}", fontsize=8, color=INK)
    ax.set_ylabel("$z_2$", fontsize=8, color=INK)


def mosaic(images: Any, marked: Any) -> Any:
    """All images in one, (height, width, 3), black on white or on the tint."""
    import numpy as np

    images, marked = np.asarray(images, dtype=float), np.asarray(marked, dtype=bool)
    rows, columns, height, width = images.shape
    paper = np.where(marked[..., None], _TINT, (1.0, 1.0, 1.0))
    coloured = (1 - images)[..., None] * paper[:, :, None, None]
    return coloured.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, 3)


def latent_markdown(summary: Mapping[str, Any]) -> str:
    """Markdown table of a summary written by ``gradpivot reproduce vae``, one row per model."""
    forgotten = summary["forgotten"]
    lines = [
        f"| model | map classified as {forgotten}, % | 95 % interval | −ELBO of other digits, nats "
        f"| −ELBO of {forgotten}s, nats | Fréchet distance (in-domain) | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_line(row, forgotten) for row in summary["models"]]
    finite = next((row for row in summary["models"] if not row["diverged"]), None)
    notes = [
        f"Spearman's ρ between γ and the share classified as {forgotten}: "
        + ("–" if summary["spearman"] is None else f"{summary['spearman']:.2f}")
        + "."
    ]
    if finite is not None:
        scores = GenerationScores.from_dict(finite["scores"])
        distance = scores.frechet[0]
        notes.append(
            f"The map has N = {scores.n:,} images, equally likely under the prior. The classifier's accuracy on real "
            f"test images is {100 * scores.classifier_accuracy:.2f} %. −ELBO is on test images, with the same noise "
            f"for all models. The Fréchet distance uses the features *{distance.features}*, N = {distance.n:,} against "
            f"{distance.n_reference:,} real images of the other digits; it is not comparable with an Inception FID."
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
