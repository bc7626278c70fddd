from __future__ import annotations

import numpy as np
import pytest

from gradpivot.errors import GradPivotError
from gradpivot.report.canvas import save_figure
from gradpivot.report.samples import SamplePanel, _sheet, row_order, sample_figure


def panel(title: str = "γ = 0.3", channels: int = 1, rows: int = 3, columns: int = 4) -> SamplePanel:
    generator = np.random.default_rng(0)
    return SamplePanel(
        title=title, images=generator.random((rows, columns, channels, 5, 6)), caption="12 % recognised"
    )


def test_forgotten_classes_come_first():
    assert row_order(5, [3]) == [3, 0, 1, 2, 4]
    assert row_order(4, [2, 0]) == [2, 0, 1, 3]
    with pytest.raises(GradPivotError, match="class 7 is outside 0 … 4"):
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


def test_what_does_not_fit_is_told():
    with pytest.raises(GradPivotError, match="at least one panel"):
        sample_figure([], [])
    with pytest.raises(GradPivotError, match="2 names and 1 forgotten rows for 3 rows"):
        sample_figure([panel()], ["3", "0"])
    with pytest.raises(GradPivotError, match="all the same"):
        sample_figure([panel(), panel(columns=2)], ["3", "0", "1"])
    with pytest.raises(GradPivotError, match="1 or 3 channels"):
        sample_figure([panel(channels=2)], ["3", "0", "1"])
