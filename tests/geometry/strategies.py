"""Pairs of gradients at chosen angles, in many dimensions and scales."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

gammas = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
scales = st.floats(-12, 12).map(lambda exponent: 10.0**exponent)
weights = st.floats(1e-3, 1e3)


@st.composite
def pairs(draw: st.DrawFn, least_sine: float = 1e-4, most_sine: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(f, r) with sin α between the bounds, opposed or not, each at its own scale from 1e-12 to 1e12."""
    dimension = draw(st.sampled_from([2, 2, 3, 3, 5, 5, 17, 17, 50, 400]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    u, v = np.linalg.qr(rng.standard_normal((dimension, 2)))[0].T
    exponent = draw(st.floats(math.log10(least_sine), math.log10(most_sine)))
    alpha = math.asin(min(1.0, 10**exponent))
    if draw(st.booleans()):
        alpha = math.pi - alpha
    r = math.cos(alpha) * u + math.sin(alpha) * v
    return u * draw(scales), r * draw(scales)
