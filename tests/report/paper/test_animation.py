"""The animated latent map."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from gradpivot.errors import GradPivotError
from gradpivot.report import save_latent_animation


def panel(gamma, ink):
    images = np.full((2, 3, 4, 4), ink)
    return {"title": f"γ = {gamma:g}", "images": images, "marked": np.zeros((2, 3), bool), "caption": "some"}


def test_it_shows_every_map_and_fades_between_them(tmp_path):
    file = save_latent_animation([panel(0, 0.0), panel(0.5, 0.5), panel(1, 1.0)], tmp_path / "new" / "map.gif")
    with Image.open(file) as found:
        assert found.is_animated
        assert found.info["loop"] == 0
        shades = []
        for number in range(found.n_frames):
            found.seek(number)
            shades.append(np.asarray(found.convert("L"))[-50:-20, 100:300].mean())
    # White to black, and never back.
    assert shades[0] > 240 > 60 > shades[-1]
    assert all(later <= earlier + 8 for earlier, later in pairwise(shades))


def test_the_same_maps_give_the_same_file(tmp_path):
    panels = [panel(0, 0.2), panel(1, 0.8)]
    first, second = (save_latent_animation(panels, tmp_path / name).read_bytes() for name in ("a.gif", "b.gif"))
    assert first == second


def test_no_map_is_an_error(tmp_path):
    with pytest.raises(GradPivotError, match="at least one panel"):
        save_latent_animation([], tmp_path / "map.gif")
