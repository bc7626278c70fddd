"""The latent map of a VAE over γ as an animated GIF: the forgotten digit dissolves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.report.common.canvas import INK, MUTED, PALETTE, read_panels
from gradpivot.report.paper.latent import LatentPanel, mosaic

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["save_latent_animation"]

_SIDE, _HEAD, _MARGIN = 400, 54, 12
_FADE = 3
"""Frames between two values of γ."""
_STILL_MS, _FADE_MS, _END_MS = 550, 70, 1800


def save_latent_animation(panels: Sequence[LatentPanel | Mapping[str, Any]], path: str | Path) -> Path:
    """Write the maps as a GIF that fades from one to the next, and back to the first.

    Args:
        panels: The maps in order of γ, titled by it.
        path: The GIF file.

    Raises:
        GradPivotError: without a panel, or if one lacks a field.
    """
    from PIL import Image

    known = read_panels(LatentPanel, panels, "latent animation")
    maps = [_map(panel) for panel in known]
    frames, times = [], []
    for place, panel in enumerate(known):
        last = place == len(known) - 1
        for step in range(1 if last else 1 + _FADE):
            share = step / (1 + _FADE)
            drawn = Image.blend(maps[place], maps[min(place + 1, len(known) - 1)], share)
            frames.append(_frame(drawn, panel, (place + share) / max(1, len(known) - 1)))
            times.append(_FADE_MS if step else _END_MS if last else _STILL_MS)
    # One palette for all frames: with one each, the background flickers.
    sample = Image.new("RGB", (frames[0].width, 2 * frames[0].height))
    sample.paste(frames[0])
    sample.paste(frames[-1], (0, frames[0].height))
    palette = sample.quantize(64)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    first.save(path, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)
    return path


def _map(panel: LatentPanel) -> Image:
    import numpy as np
    from PIL import Image

    drawn = Image.fromarray((255 * mosaic(panel.images, panel.marked)).round().astype(np.uint8))
    return drawn.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)


def _frame(drawn: Image, panel: LatentPanel, along: float) -> Image:
    """A map below its title, its caption and a slider."""
    from matplotlib.font_manager import findfont
    from PIL import Image, ImageDraw, ImageFont

    # Pillow's own font has no γ.
    font = findfont("DejaVu Sans")
    frame = Image.new("RGB", (_SIDE + 2 * _MARGIN, _SIDE + _HEAD + _MARGIN), "white")
    frame.paste(drawn, (_MARGIN, _HEAD))
    pen = ImageDraw.Draw(frame)
    pen.text((_MARGIN, 6), panel.title, fill=INK, font=ImageFont.truetype(font, 17))
    pen.text((_SIDE + _MARGIN, 9), panel.caption, fill=MUTED, font=ImageFont.truetype(font, 13), anchor="ra")
    height, reach = _HEAD - 14, _MARGIN + round(along * _SIDE)
    pen.line((_MARGIN, height, _MARGIN + _SIDE, height), fill="#D8DCE0", width=4)
    pen.line((_MARGIN, height, reach, height), fill=PALETTE[0], width=4)
    pen.ellipse((reach - 6, height - 6, reach + 6, height + 6), fill=PALETTE[0])
    return frame
