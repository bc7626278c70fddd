"""Areas, rates and standard errors against brute force, scikit-learn and simulation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from gradpivot.auditing.statistics import (
    auc,
    clopper_pearson,
    contrast,
    delong,
    jackknife,
    null_variance,
    paired_difference,
    roc,
    spread,
    tpr_at,
    wald,
)
from gradpivot.errors import GradPivotError

scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


def brute_auc(positive, negative) -> float:
    return float(np.mean([(p > q) + 0.5 * (p == q) for p in positive for q in negative]))


def brute_delong(positive, negative):
    """Placements and covariances with explicit loops."""
    n, m = positive.shape[1], negative.shape[1]
    kernel = (positive[:, :, None] > negative[:, None, :]) + 0.5 * (positive[:, :, None] == negative[:, None, :])
    by_positive, by_negative = kernel.mean(axis=2), kernel.mean(axis=1)
    areas, k = kernel.mean(axis=(1, 2)), len(positive)
    covariance = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            first = sum((by_positive[a] - areas[a]) * (by_positive[b] - areas[b])) / (n - 1)
            second = sum((by_negative[a] - areas[a]) * (by_negative[b] - areas[b])) / (m - 1)
            covariance[a, b] = first / n + second / m
    return areas, covariance


@settings(max_examples=50)
@given(scores, scores)
def test_auc_counts_pairs_and_halves_ties(positive, negative):
    assert auc(positive, negative) == pytest.approx(brute_auc(positive, negative), abs=1e-12)
    truth = [1] * len(positive) + [0] * len(negative)
    assert auc(positive, negative) == pytest.approx(roc_auc_score(truth, positive + negative), abs=1e-12)
    assert auc(positive, negative) + auc(negative, positive) == pytest.approx(1)


@settings(max_examples=50)
@given(scores, scores)
def test_only_the_order_counts(positive, negative):
    def mapped(values):
        return [math.exp(2 * value) - 5 for value in values]

    assert auc(mapped(positive), mapped(negative)) == auc(positive, negative)
    for one, other in zip(delong(mapped(positive), mapped(negative)), delong(positive, negative), strict=True):
        np.testing.assert_array_equal(one, other)
    assert roc(mapped(positive), mapped(negative)) == roc(positive, negative)
    assert tpr_at(mapped(positive), mapped(negative), 0.2).tpr == tpr_at(positive, negative, 0.2).tpr


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tied", [False, True])
def test_delong_agrees_with_loops(seed, tied):
    generator = np.random.default_rng(seed)
    positive, negative = generator.normal(0.5, 1, (3, 17)), generator.normal(0, 1, (3, 23))
    if tied:
        positive, negative = positive.round(), negative.round()
    areas, covariance = delong(positive, negative)
    expected_areas, expected = brute_delong(positive, negative)
    np.testing.assert_allclose(areas, expected_areas, atol=1e-12)
    np.testing.assert_allclose(covariance, expected, atol=1e-12)


def test_delong_of_one_score_is_auc():
    generator = np.random.default_rng(0)
    positive, negative = generator.normal(1, 1, 30), generator.normal(0, 1, 40)
    areas, covariance = delong(positive, negative)
    assert areas[0] == pytest.approx(auc(positive, negative))
    assert covariance.shape == (1, 1)


def test_perfect_separation_is_not_certain():
    """DeLong's variance is 0 there: the null variance replaces it; identical scores still differ by exactly 0."""
    positive, negative = np.arange(5.0) + 10, np.arange(4.0)
    areas, covariance = delong([positive, positive, -positive], [negative, negative, -negative])
    assert areas.tolist() == [1, 1, 0]
    assert covariance[0, 0] == covariance[2, 2] == null_variance(5, 4) == pytest.approx(10 / 240)
    assert contrast(areas, covariance, 0, 1) == (0, 0)
    assert contrast(areas, covariance, 0, 2) == (1, pytest.approx(math.sqrt(2 * null_variance(5, 4))))


def test_constant_scores_and_single_samples_are_uncertain():
    areas, covariance = delong(np.ones(6), np.ones(9))
    assert (areas[0], covariance[0, 0]) == (0.5, null_variance(6, 9))
    areas, covariance = delong([[2.0], [0.5]], [[1.0, 3.0, 0.0], [1.0, 3.0, 0.0]])
    assert covariance[0, 0] == covariance[1, 1] == null_variance(1, 3)


def test_identical_scores_differ_by_nothing():
    generator = np.random.default_rng(0)
    positive, negative = generator.normal(size=20), generator.normal(size=30)
    difference, error = contrast(*delong([positive] * 2, [negative] * 2), 0, 1)
    assert difference == 0
    assert error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("shift", "shared"), [(0.0, 0.0), (0.8, 0.0), (0.8, 0.9)])
def test_the_interval_of_an_auc_difference_covers(shift, shared):
    """Two scores of equal power with a shared part: 95 % intervals hold 0 in about 95 % of 200 draws."""
    generator, covered, single = np.random.default_rng(1), 0, 0
    true_area = stats.norm.cdf(shift / math.sqrt(2))
    for _ in range(200):
        positive, negative = (
            centre
            + math.sqrt(1 - shared) * generator.normal(size=(2, n))
            + math.sqrt(shared) * generator.normal(size=n)
            for centre, n in ((shift, 60), (0.0, 80))
        )
        areas, covariance = delong(positive, negative)
        difference, error = contrast(areas, covariance, 0, 1)
        covered += abs(difference) <= 1.96 * error
        low, high = wald(areas[0], math.sqrt(covariance[0, 0]))
        single += low <= true_area <= high
    assert 0.89 <= covered / 200 <= 1
    assert 0.89 <= single / 200 <= 1


@settings(max_examples=50)
@given(scores, scores)
def test_roc_has_the_vertices_of_scikit_learn(positive, negative):
    found = roc(positive, negative)
    fpr, tpr, _ = roc_curve([1] * len(positive) + [0] * len(negative), positive + negative, drop_intermediate=False)
    best = {}
    for x, y in zip(fpr, tpr, strict=True):
        best[round(x, 9)] = y
    assert [round(x, 9) for x in found.fpr] == list(best)
    np.testing.assert_allclose(found.tpr, list(best.values()))


def test_roc_is_thinned_for_logarithmic_axes():
    generator = np.random.default_rng(0)
    found = roc(generator.normal(1, 1, 3000), generator.normal(0, 1, 5000), points=100)
    assert json.loads(json.dumps(found._asdict())) == found._asdict()
    assert 60 <= len(found.fpr) <= 101
    assert (found.fpr[0], found.fpr[1]) == (0, 1 / 5000)
    assert (found.fpr[-1], found.tpr[-1]) == (1, 1)
    assert all(np.diff(found.fpr) > 0)
    assert all(np.diff(found.tpr) >= 0)
    assert max(np.diff(np.log(found.fpr[10:]))) < 0.3


@settings(max_examples=50)
@given(scores, scores, st.floats(0, 0.9))
def test_the_threshold_keeps_its_promise(positive, negative, fpr):
    found = tpr_at(positive, negative, fpr)
    assert found.allowed <= fpr * len(negative) + 1e-6
    above = [sum(q >= cut for q in negative) for cut in positive]
    # Of all cuts "score ≥ c" with few enough false positives, the one at the lowest positive detects the most.
    allowed = [
        sum(p >= cut for p in positive) for cut, alarms in zip(positive, above, strict=True) if alarms <= found.allowed
    ]
    assert found.tpr == pytest.approx(max(allowed, default=0) / len(positive))
    assert found.interval[0] <= found.tpr <= found.interval[1]


def test_tpr_with_too_few_negatives_allows_no_false_positive():
    found = tpr_at([1, 2, 3, 4], [0, 2.5], 0.01)
    assert (found.allowed, found.tpr, found.detected.tolist()) == (0, 0.5, [False, False, True, True])
    assert found.expected == pytest.approx(1 / 3)
    assert tpr_at(range(100), range(100), 0.29).allowed == 29


@pytest.mark.parametrize("n", [20, 99])
def test_expected_rate_of_equal_distributions(n):
    generator = np.random.default_rng(0)
    found = [tpr_at(generator.normal(size=50), generator.normal(size=n), 0.05) for _ in range(800)]
    assert np.mean([one.tpr for one in found]) == pytest.approx(found[0].expected, rel=0.15)


@pytest.mark.parametrize(("share", "n"), [(0.01, 40), (0.3, 25), (0.95, 80)])
def test_clopper_pearson_covers_at_least_95_percent(share, n):
    """Exactly, over all outcomes."""
    chances = stats.binom.pmf(np.arange(n + 1), n, share)
    covers = [low <= share <= high for low, high in (clopper_pearson(k, n) for k in range(n + 1))]
    assert chances[covers].sum() >= 0.95


def test_clopper_pearson_at_the_ends():
    assert clopper_pearson(0, 0) == (0, 1)
    assert clopper_pearson(0, 10) == (0, pytest.approx(1 - 0.025 ** (1 / 10)))
    assert clopper_pearson(10, 10) == (pytest.approx(0.025 ** (1 / 10)), 1)


def test_paired_difference_by_hand():
    """b = 3, c = 1, n = 10: p = 4/12, q = 2/12."""
    first = [1, 1, 1, 0, 1, 1, 1, 0, 0, 0]
    second = [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]
    difference, error = paired_difference(first, second)
    assert difference == pytest.approx(0.2)
    assert error == pytest.approx(math.sqrt((0.5 - (1 / 6) ** 2) / 12))
    assert paired_difference(first, first)[1] > 0
    with pytest.raises(GradPivotError, match="paired"):
        paired_difference([True], [True, False])


def test_the_interval_of_a_paired_difference_covers():
    generator, covered = np.random.default_rng(2), 0
    for _ in range(1000):
        hard = generator.random(40) < 0.2
        first, second = ~hard | (generator.random(40) < 0.5), ~hard | (generator.random(40) < 0.1)
        difference, error = paired_difference(first, second)
        covered += abs(difference - 0.2 * 0.4) <= 1.96 * error
    assert covered / 1000 >= 0.93


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=(12, 2))
    expected = values.std(axis=0, ddof=1) / math.sqrt(12)
    np.testing.assert_allclose(jackknife(lambda kept: values[kept].mean(axis=0), 12), expected)
    assert jackknife(lambda kept: float(values[kept, 0].mean()), 12) == pytest.approx(expected[0])
    with pytest.raises(GradPivotError, match="two groups"):
        jackknife(lambda kept: 0.0, 1)


@pytest.mark.parametrize(("positive", "negative"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_no_scores_and_nan_are_errors(positive, negative):
    with pytest.raises(GradPivotError, match=r"samples|NaN"):
        auc(positive, negative)


def test_the_spread_is_the_largest_difference_from_the_first():
    assert spread([0.5]) is None
    assert spread([0.5, 0.6, 0.2]) == pytest.approx(0.3)
