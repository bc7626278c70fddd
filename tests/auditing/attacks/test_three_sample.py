from __future__ import annotations

import numpy as np
import pytest

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.three_sample import THREE_SAMPLE, relative_similarity


def _samples(shift: float, seed: int, n: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)) + shift


def test_it_says_which_of_two_distributions_is_nearer():
    near = relative_similarity(_samples(0.0, 0), _samples(0.1, 1), _samples(1.0, 2))
    far = relative_similarity(_samples(0.0, 0), _samples(1.0, 1), _samples(0.1, 2))
    assert near.difference < 0 < far.difference
    assert near.p_value > 0.99
    assert far.p_value < 0.01


def test_identical_outputs_give_zero():
    same = np.ones((10, 3)) / 3
    assert relative_similarity(same, same, same) == (0.0, 0.0, 0.5)
    points = _samples(0, 0)
    assert abs(relative_similarity(points, points, points).statistic) < 1e-6


def test_swapping_the_references_swaps_the_sign():
    x, y, z = (_samples(shift, seed) for seed, shift in enumerate((0.0, 0.2, 0.5)))
    assert relative_similarity(x, y, z).statistic == pytest.approx(-relative_similarity(x, z, y).statistic)


def test_its_false_positive_rate_is_the_nominal_one():
    """Two references at the same distance: p is below 5 % in about 5 of 100 draws."""
    rejected = sum(
        relative_similarity(
            _samples(0.0, seed, 60), _samples(0.5, seed + 1000, 60), _samples(-0.5, seed + 2000, 60)
        ).p_value
        < 0.05
        for seed in range(200)
    )
    assert rejected <= 22  # a binomial with 200 × 0.05 exceeds this with probability 0.0002


@pytest.mark.numeric
def test_planted_models_are_told_apart():
    original = THREE_SAMPLE.run(planted.case(planted.original()))
    retrained = THREE_SAMPLE.run(planted.case(planted.retrained(7)))
    assert retrained.value < 0 < original.value
    assert original.details["p_value"] < 0.01
    assert retrained.details["p_value"] > 0.99
    assert retrained.control < 0


def test_it_needs_both_models():
    with pytest.raises(NotTestedError, match="retrained"):
        THREE_SAMPLE.run(planted.case(planted.original(), retrained=()))
    with pytest.raises(NotTestedError, match="original"):
        THREE_SAMPLE.run(planted.case(planted.original(), original=None))
