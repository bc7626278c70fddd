from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest

from gradpivot.data.readers.png import encode_rgb
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.pictures import Pictures
from gradpivot.report.common.canvas import save_figure
from gradpivot.report.generators import samples
from gradpivot.report.generators.samples import (
    SamplePanel,
    _sheet,
    blank_panel,
    picture_panel,
    row_order,
    sample_figure,
)


def panel(title: str = "γ = 0.3", channels: int = 1, rows: int = 3, columns: int = 4) -> SamplePanel:
    generator = np.random.default_rng(0)
    return SamplePanel(title=title, images=generator.random((rows, columns, channels, 5, 6)), caption="12 % recognised")


def test_forgotten_classes_come_first():
    assert row_order(5, [3]) == [3, 0, 1, 2, 4]
    assert row_order(4, [2, 0]) == [2, 0, 1, 3]
    with pytest.raises(GradPivotError, match="forgotten class is 7; it must be between 0 and 4"):
        row_order(5, [7])


@pytest.mark.parametrize("channels", [1, 3])
def test_every_picture_is_on_the_sheet_where_it_belongs(channels):
    grid = panel(channels=channels).images
    sheet = _sheet(grid).reshape(3 * 6 + 1, 4 * 7 + 1, channels)
    for row in range(3):
        for column in range(4):
            found = sheet[1 + row * 6 : 6 + row * 6, 1 + column * 7 : 7 + column * 7]
            np.testing.assert_array_equal(found, grid[row, column].transpose(1, 2, 0))
    assert (sheet[::6] == 1).all()
    assert (sheet[:, ::7] == 1).all()


def test_figure_has_a_panel_a_model_and_frames_what_was_forgotten(tmp_path):
    figure = sample_figure([panel(f"γ = {i / 10}") for i in range(5)], ["3", "0", "1"])
    shown = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in shown] == [f"γ = {i / 10}" for i in range(5)]
    assert [label.get_text() for label in shown[0].get_yticklabels()] == ["3", "0", "1"]
    assert not shown[1].get_yticklabels()
    assert all(len(ax.patches) == 1 and ax.patches[0].get_height() == 7 for ax in shown)
    assert save_figure(figure, tmp_path / "samples.png").stat().st_size > 1000


def test_the_same_panels_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save_figure(sample_figure([panel()], ["3", "0", "1"]), tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_mismatched_panels_are_rejected():
    with pytest.raises(GradPivotError, match="at least one panel"):
        sample_figure([], [])
    with pytest.raises(GradPivotError, match="2 row names and 1 forgotten rows for panels with 3 rows"):
        sample_figure([panel()], ["3", "0"])
    with pytest.raises(GradPivotError, match="all must have the same shape"):
        sample_figure([panel(), panel(columns=2)], ["3", "0", "1"])
    with pytest.raises(GradPivotError, match="1 or 3 channels"):
        sample_figure([panel(channels=2)], ["3", "0", "1"])


def pictures() -> tuple[Pictures, np.ndarray]:
    """A sheet of 2 rows and 3 columns of 5×4 pictures, and its pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    return Pictures(png=base64.b64encode(encode_rgb(pixels)).decode(), rows=(3, 0), columns=3), pixels


def test_a_kept_sheet_is_a_panel_with_every_picture_in_its_place():
    kept, pixels = pictures()
    found = picture_panel(kept, "γ = 0.3", "told")
    assert (found.title, found.caption, found.images.shape) == ("γ = 0.3", "told", (2, 3, 3, 5, 4))
    for row in range(2):
        for column in range(3):
            part = pixels[row * 5 : row * 5 + 5, column * 4 : column * 4 + 4]
            np.testing.assert_array_equal(found.images[row, column], part.transpose(2, 0, 1) / 255)
    empty = blank_panel(found, "γ = 1", "diverged")
    assert empty.images.shape == found.images.shape
    assert (empty.images == 1).all()


def test_invalid_sheets_are_rejected(monkeypatch):
    kept, _ = pictures()
    with pytest.raises(GradPivotError, match="12×10 pixels, not divisible into 2 rows and 5 columns"):
        picture_panel(replace(kept, columns=5), "x")
    with pytest.raises(GradPivotError, match="not divisible into 3 rows"):
        picture_panel(replace(kept, rows=(3, 0, 1)), "x")
    with pytest.raises(GradPivotError, match="not divisible into 0 rows"):
        picture_panel(replace(kept, rows=()), "x")
    with pytest.raises(GradPivotError, match="not valid base64"):
        picture_panel(replace(kept, png="<script>"), "x")
    with pytest.raises(GradPivotError, match="not a PNG"):
        picture_panel(replace(kept, png=base64.b64encode(b"GIF89a").decode()), "x")
    monkeypatch.setattr(samples, "MAX_SHEET_PIXELS", 100)
    with pytest.raises(GradPivotError, match="the limit is 100 in total"):
        picture_panel(kept, "x")
