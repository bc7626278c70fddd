from __future__ import annotations

import math

import pytest

from gradpivot.geometry.gramian import Gram
from gradpivot.loop.gradients import Gradients


@pytest.mark.parametrize(
    ("gram", "losses", "fault"),
    [
        (Gram(1, 1, 0), (0.5, 0.5), None),
        (Gram(0, 1, 0), (None, 0.5), None),
        (Gram(1, 1, 0), (math.nan, 0.5), "the forget loss is nan"),
        (Gram(math.nan, 1, 0), (0.5, math.inf), "the retain loss is inf"),
        (Gram(math.inf, 1, 0), (0.5, 0.5), "a gradient is not finite"),
    ],
)
def test_the_fault_is_told_from_the_losses_first(gram, losses, fault):
    assert Gradients([], [], gram, *losses).fault == fault
