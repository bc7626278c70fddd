"""The likelihood-ratio attack against a loop over scipy's densities and a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gradpivot.auditing.lira import PRIOR_WORLDS, lira_auc, lira_scores, lira_tpr, record_aucs
from gradpivot.auditing.statistics import jackknife
from gradpivot.errors import GradPivotError


def gaussian_worlds(worlds: int, records: int, distance: float, seed: int = 0, spread: float = 3.0):
    """Margins N(μ_t + d σ_t, σ_t²) inside and N(μ_t, σ_t²) outside: the best attack has AUC Φ(d/√2)."""
    generator = np.random.default_rng(seed)
    halves = [generator.permutation(np.arange(worlds) % 2 == 0) for _ in range(records)]
    inside = np.stack(halves, axis=1)
    centre, sigma = spread * generator.normal(size=records), np.full(records, 1.5)
    noise = generator.normal(size=(worlds, records))
    return centre + sigma * (noise + distance * inside), inside


def slow_scores(margins: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The formula of the module, a record and a world at a time. Every record has worlds on both sides."""
    worlds, records = margins.shape
    scores = np.empty((worlds, records))
    for k in range(worlds):
        sides = []
        for member in (True, False):
            others = [[j for j in range(worlds) if j != k and inside[j, t] == member] for t in range(records)]
            rows = [[margins[j, t] for j in others[t]] for t in range(records)]
            squares = [sum((x - np.mean(row)) ** 2 for x in row) for row in rows]
            pooled = sum(squares) / sum(len(row) - 1 for row in rows)
            sides.append((rows, squares, pooled))
        for t in range(records):
            densities = []
            for rows, squares, pooled in sides:
                n = len(rows[t])
                variance = (PRIOR_WORLDS * pooled + squares[t]) / (PRIOR_WORLDS + n - 1)
                scale = math.sqrt(variance * (1 + 1 / n))
                densities.append(stats.norm.logpdf(margins[k, t], np.mean(rows[t]), scale))
            scores[k, t] = densities[0] - densities[1]
    return scores


@pytest.mark.parametrize("seed", range(3))
def test_scores_agree_with_a_loop(seed):
    margins, inside = gaussian_worlds(10, 7, 1.0, seed)
    inside[0, 0] = ~inside[0, 0]
    np.testing.assert_allclose(lira_scores(margins, inside), slow_scores(margins, inside), atol=1e-10)


def test_many_worlds_reach_the_best_attack():
    """Φ(d/√2) for d = 1 is 0.760; 400 worlds estimate the Gaussians to about 0.1 σ."""
    best = stats.norm.cdf(1 / math.sqrt(2))
    margins, inside = gaussian_worlds(400, 40, 1.0)
    assert lira_auc(margins, inside) == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("worlds", [16, 32])
def test_few_worlds_stay_between_chance_and_the_best_attack(worlds):
    best = stats.norm.cdf(1 / math.sqrt(2))
    areas = [lira_auc(*gaussian_worlds(worlds, 200, 1.0, seed)) for seed in range(5)]
    assert min(areas) > 0.6
    assert max(areas) < best


def test_shrinking_the_variance_helps_with_few_worlds(monkeypatch):
    drawn = [gaussian_worlds(12, 200, 1.0, seed) for seed in range(5)]
    shrunk = np.mean([lira_auc(*one) for one in drawn])
    monkeypatch.setattr("gradpivot.auditing.lira.PRIOR_WORLDS", 1e-6)
    assert shrunk > np.mean([lira_auc(*one) for one in drawn]) + 0.01


@pytest.mark.parametrize("worlds", [8, 16])
def test_no_signal_is_chance_within_the_jackknife_error(worlds):
    """Over 8 draws: no z-score is extreme, and there is no gross bias."""
    found = []
    for seed in range(8):
        margins, inside = gaussian_worlds(worlds, 40, 0.0, seed)
        error = jackknife(lambda kept, m=margins, i=inside: lira_auc(m[kept], i[kept]), worlds)
        found.append((lira_auc(margins, inside) - 0.5) / float(error))
    assert np.abs(found).max() < 3.5
    assert abs(np.mean(found)) < 1.5


def test_rates_over_all_decisions():
    margins, inside = gaussian_worlds(24, 100, 3.0)
    assert lira_auc(margins, inside) > 0.9
    assert lira_tpr(margins, inside) > 0.2
    assert lira_auc(margins, ~inside) > 0.9, "the attack orients itself"


def test_record_aucs_find_the_exposed_record():
    margins, inside = gaussian_worlds(16, 20, 0.0)
    margins[:, 3] += 8 * inside[:, 3]
    inside[:, 5] = True
    areas = record_aucs(lira_scores(margins, inside), inside)
    assert np.nanargmax(areas) == 3
    assert areas[3] > 0.95
    assert np.isnan(areas[5])


def test_records_with_few_worlds_on_a_side_have_finite_scores():
    margins, inside = gaussian_worlds(8, 30, 2.0)
    inside[:, 0], inside[:, 1] = False, True
    inside[:, 2] = np.arange(8) == 0
    scores = lira_scores(margins, inside)
    assert np.isfinite(scores).all()
    # Never inside: the mean inside is borrowed from the other records, so a high margin still speaks for inside.
    assert np.corrcoef(scores[:, 0], margins[:, 0])[0, 1] > 0.9


def test_constant_margins_say_nothing():
    inside = np.arange(8)[:, None] % 2 == np.zeros(5, dtype=int)
    scores = lira_scores(np.full((8, 5), 3.0), inside)
    assert np.isfinite(scores).all()
    assert lira_scores(np.full((4, 1), 3.0), inside[:4, :1]).shape == (4, 1)


def test_shapes_are_checked():
    with pytest.raises(GradPivotError, match="worlds"):
        lira_scores(np.zeros((2, 5)), np.zeros((2, 5), dtype=bool))
    with pytest.raises(GradPivotError, match="shape"):
        lira_scores(np.zeros((4, 5)), np.zeros((4, 6), dtype=bool))
