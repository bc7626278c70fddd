from __future__ import annotations

import numpy as np
import pytest

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import Frechet, GenerationScores
from gradpivot.report.paper.latent import LatentPanel, latent_figure, latent_markdown, mosaic

pytest.importorskip("matplotlib")


def panel(title: str = "Original") -> LatentPanel:
    draw = np.random.default_rng(0)
    return LatentPanel(title=title, images=draw.random((3, 3, 4, 4)), marked=np.eye(3, dtype=bool), caption="c")


def test_the_mosaic_puts_every_image_in_its_cell():
    images = np.zeros((2, 3, 4, 5))
    images[1, 2, 3, 0] = 1
    marked = np.zeros((2, 3), dtype=bool)
    marked[0, 1] = True
    picture = mosaic(images, marked)
    assert picture.shape == (8, 15, 3)
    np.testing.assert_array_equal(picture[7, 10], [0, 0, 0])
    assert (picture[:4, 5:10] != 1).any(-1).all(), "a marked cell is tinted"
    picture[:4, 5:10] = picture[7, 10] = 1
    assert (picture == 1).all(), "all else is white"


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (5, 1, 5), (8, 2, 4), (11, 3, 4)])
def test_panels_are_laid_out_in_even_rows(count, rows, columns):
    figure = latent_figure([panel(f"γ = {i}") for i in range(count)], 3)
    shape = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    assert shape == (rows, columns)
    assert figure.axes[0].get_title() == "(a) γ = 0"
    assert figure.legends[0].get_texts()[0].get_text() == "classified as 3"


def test_panels_that_cannot_be_drawn():
    with pytest.raises(GradPivotError, match="at least one"):
        latent_figure([], 3)
    with pytest.raises(GradPivotError, match="invalid panel"):
        latent_figure([{"title": "a"}], 3)


def test_the_table_has_every_number_with_what_it_depends_on():
    scores = GenerationScores(
        called=((75, 25),), asked=(), forgotten=(1,), classifier_accuracy=0.991,
        frechet=(Frechet(12.3456, "in-domain mnist-recogniser", 100, 9000),),
    )  # fmt: skip
    row = {"name": "γ = 0.5", "gamma": 0.5, "seconds": 7.0, "diverged": None, "scores": scores.to_dict(),
           "others_nats": 140.04, "forgotten_nats": 190.0}  # fmt: skip
    lost = {"name": "γ = 1", "gamma": 1.0, "seconds": 2.0, "diverged": {"step": 3, "reason": "the loss is nan"}}
    text = latent_markdown({"forgotten": 1, "spearman": -1.0, "models": [row, lost]})
    assert "| γ = 0.5 | 25.00 | 17.55 … 34.30 | 140.0 | 190.0 | 12.3 | 7 |" in text
    assert "| γ = 1 | diverged: the loss is nan |" in text
    for fact in ("-1.00", "N = 100 ", "99.10 %", "*in-domain mnist-recogniser*", "9,000 real images"):
        assert fact in text
    assert "–." in latent_markdown({"forgotten": 1, "spearman": None, "models": [lost]})
