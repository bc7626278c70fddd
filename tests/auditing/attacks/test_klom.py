"""KLoM on margins that are drawn."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.klom import BINS, KLOM, record_divergences
from gradpivot.auditing.subject import Subject
from gradpivot.auditing.worlds import Worlds
from made_outputs import subject_with


def made_worlds(left: float, seed: int = 0, count: int = 32, records: int = 40) -> Worlds:
    generator = np.random.default_rng(seed)
    inside = generator.random((count, records)) < 0.5
    shadow, retrained, unlearned = generator.normal(size=(3, count, records))
    return Worlds(
        inside=inside, shadow=shadow + 3 * inside, retrained=retrained, unlearned=unlearned + 3 * left * inside,
        indices=np.arange(records), method="cup",
    )  # fmt: skip


def subject_in(worlds: Worlds | None) -> Subject:
    return replace(subject_with(np.zeros((2, 5)), np.zeros((2, 5))), worlds=worlds)


def test_a_record_by_hand():
    worlds = made_worlds(0.5)
    found = record_divergences(worlds.unlearned, worlds.retrained, worlds.inside)
    for t in range(5):
        p, q = worlds.unlearned[worlds.inside[:, t], t], worlds.retrained[~worlds.inside[:, t], t]
        edges = np.histogram_bin_edges(np.concatenate([p, q]), BINS)
        p, q = ((np.histogram(one, edges)[0] + 1 / BINS) / (len(one) + 1) for one in (p, q))
        assert found[t] == pytest.approx(stats.entropy(p, q))


def test_constant_margins_and_one_sided_records():
    worlds = made_worlds(0.0)
    worlds.inside[:, 0] = True
    found = record_divergences(worlds.unlearned, worlds.retrained, worlds.inside)
    assert np.isnan(found[0])
    assert (found[1:] >= 0).all()
    same = np.ones_like(worlds.retrained)
    np.testing.assert_allclose(record_divergences(same, same, worlds.inside)[1:], 0, atol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_the_control_has_the_same_bias(seed):
    """Nothing is left: the value is far above 0 and near the control; the original is far above both."""
    found = KLOM.run(subject_in(made_worlds(0.0, seed)))
    assert found.control > 0.3
    assert abs(found.difference) < 4 * found.error
    assert found.original > found.value + 0.3
    assert (found.unit, found.decides, found.n) == ("nats", False, 40)


def test_what_is_left_shows():
    left = [KLOM.run(subject_in(made_worlds(share))).value for share in (0.0, 0.5, 1.0)]
    assert left == sorted(left)


def test_details_are_plain_data_worst_first():
    worlds = made_worlds(0.0)
    worlds.unlearned[:, 7] += 20
    details = KLOM.run(subject_in(worlds)).details
    assert json.loads(json.dumps(details)) == details
    records = details["records"]
    assert records["score"] == sorted(records["score"], reverse=True)
    assert records["index"][0] == 7


def test_it_needs_worlds():
    with pytest.raises(NotTestedError, match="KLoM needs shadow models"):
        KLOM.run(subject_in(None))
