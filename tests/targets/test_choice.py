from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch.utils.data import TensorDataset

from gradpivot import CUP, ForgetSplit, trace, unlearn
from gradpivot.data import load_digits
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scores import Scores
from gradpivot.runtime import isolated
from gradpivot.targets.choice import Expected, choose, expected_scores, recommend
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import Guarded, blobs, trained

shares = st.integers(0, 20).map(lambda n: n / 20)
rows = st.tuples(shares, shares, shares, shares)


def guarded(kind: str = "class") -> ForgetSplit:
    """A split whose test part raises when it is read."""
    test = Guarded(*blobs(seed=2).tensors)
    options = {"validation": blobs(seed=1), "data_id": "blobs"}
    if kind == "class":
        return ForgetSplit.by_class(blobs(), test, 0, **options)
    return ForgetSplit.random(blobs(), test, 0.2, **options)


@cache
def candidates(kind: str = "class"):
    """Models that were made without their final scores, which would read the test part."""
    split = guarded(kind)
    readable = replace(split, test=split.validation, validation=None)
    return [unlearn(trained(), readable, CUP(gamma=gamma, epochs=15, batch_size=8)) for gamma in (0.0, 0.4, 1.0)]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(rows, min_size=1, max_size=8), rows, st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_matter(points, expected, random):
    knobs = [i / 8 for i in range(len(points))]
    best = choose(points, expected, knobs)
    order = list(range(len(points)))
    random.shuffle(order)
    again = choose([points[i] for i in order], expected, [knobs[i] for i in order])
    assert order[again] == best
    assert all(
        np.linalg.norm(np.subtract(points[best], expected)) <= np.linalg.norm(np.subtract(p, expected)) + 1e-9
        for p in points
    )


def test_of_equally_near_points_the_one_that_forgets_least():
    expected = (1.0, 1.0, 0.9, 1.0)
    assert choose([(1, 1, 0.9, 1), (1, 1, 0.9, 1)], expected, [0.9, 0.8]) == 1
    assert choose([(1, 1, 0.8, 1), (1, 1, 1.0, 1)], expected, [0.9, 1.0]) == 0
    assert choose([None, (0, 0, 0, 0)], expected, [0.1, 0.2]) == 1
    with pytest.raises(GradPivotError, match="no finite point"):
        choose([None], expected, [0.5])


def test_a_forgotten_class_is_expected_to_be_gone():
    split = guarded()
    steering = replace(split, test=split.validation, validation=None)
    row = expected_scores(trained(), steering, Classification()).row
    assert row[1] == row[3] == 1
    assert row[0] > 0.95
    model, kept = trained(), steering.test_indices
    features, labels = (part[torch.from_numpy(kept)] for part in split.validation.tensors)
    assert row[2] == pytest.approx(float((model(features).argmax(1) == labels).double().mean()))


@pytest.mark.numeric
def test_other_samples_are_expected_to_be_like_never_seen_ones():
    split = guarded("random")
    steering = replace(split, test=split.validation, validation=None)
    ra, ta, auc = expected_scores(trained(), steering, Classification()).row
    assert ta > 0.9
    assert auc == 0.5
    assert ra > 0.95


def test_for_records_an_auc_on_either_side_counts_the_same_and_small_ones_not_at_all():
    expected = Expected((1.0, 0.9, 0.5), True, (0.0, 0.0, 0.05))
    above, below = (expected.gaps((1.0, 0.9, auc)) for auc in (0.58, 0.42))
    assert above == pytest.approx(below)
    assert below == pytest.approx((0, 0, 0.03))
    assert expected.gaps((1.0, 0.9, 0.48)) == expected.gaps((1.0, 0.9, 0.52)) == (0, 0, 0)
    assert expected.gaps((1.0, 0.95, 0.5)) == pytest.approx(expected.gaps((1.0, 0.85, 0.5)))


@pytest.mark.parametrize("kind", ["class", "random"])
def test_the_test_part_is_never_read(kind):
    split = guarded(kind)
    with pytest.raises(AssertionError, match="read the test data"):
        split.test[0]
    found = candidates(kind)
    choice = recommend(trained(), split, found)
    backwards = recommend(trained(), split, found[::-1])
    assert backwards.result is choice.result is found[choice.index]
    assert (backwards.seen, backwards.estimate) == (choice.seen, choice.estimate)


@pytest.mark.numeric
def test_the_best_of_a_known_case():
    """A class that is wholly forgotten at no price is a retrained model's row; half of the way is not."""
    split = guarded()
    found = candidates()
    assert found[2].scores.ua > 0.9
    choice = recommend(trained(), split, found)
    assert choice.index == 2
    assert choice.estimate < 0.1
    assert "gamma=1.0" in choice.reason
    assert f"UA {100 * found[2].scores.ua:.2f}" in choice.reason


def test_what_diverged_is_never_recommended():
    split = guarded()
    found = candidates()
    lost = replace(found[2], scores=Scores.of_diverged(), diverged={"step": 1, "reason": "NaN"})
    assert recommend(trained(), split, [found[0], found[1], lost]).index == 1
    broken = replace(found[2], model=_not_finite())
    assert recommend(trained(), split, [found[0], broken]).index == 0
    with pytest.raises(GradPivotError, match="no finite point"):
        recommend(trained(), split, [lost])


def _not_finite():
    model = trained()
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    return model


def test_a_trace_recommends_without_a_reference():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    traced = trace(trained(), split, CUP(epochs=5, batch_size=8), quick=True, points=5)
    choice = traced.recommend()
    assert choice.result is traced.results[choice.index]
    assert choice.seen[1] == choice.result.scores.ua
    with pytest.raises(GradPivotError, match="has no models"):
        replace(traced, recommended=None).recommend()


def test_an_undetermined_mia_takes_no_part():
    """A model that gives members and held-out data the same confidence has no MIA to compare."""
    split = guarded()
    model = trained()
    with torch.no_grad():
        model.layers[-1].weight.zero_()
        model.layers[-1].bias.zero_()
    choice = recommend(model, split, candidates())
    assert not choice.mia_determined
    assert choice.to_dict()["mia_determined"] is False
    assert choice.estimate == pytest.approx(float(np.linalg.norm(np.subtract(choice.seen, choice.expected)[:3])))
    assert "without MIA" in choice.reason


def shaky_digits(seed: int):
    """A network that remembers digits of which a fifth has a wrong label, and a random tenth to forget."""
    (images, labels), (unseen, truth) = (data.tensors for data in load_digits())
    draw = torch.Generator().manual_seed(seed)

    def shaken(part):
        wrong = torch.rand(len(part), generator=draw) < 0.2
        return torch.where(wrong, torch.randint(10, part.shape, generator=draw), part)

    train, test = TensorDataset(images, shaken(labels)), TensorDataset(unseen, shaken(truth))
    with isolated(seed):
        model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), train.tensors[1]).backward()
        optimizer.step()
    return model.eval(), ForgetSplit.random(train, test, 0.1, seed=seed).with_validation()


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gamma_conditions_and_the_choice_agree_on_records(seed):
    """They read the same AUC on the same validation data, so what satisfies one is not refused by another."""
    model, split = shaky_digits(seed)
    method = CUP(gamma=1.0)
    forgotten = unlearn(model, split, method)
    original = replace(forgotten, model=model, method=replace(method, gamma=0.0))
    choice = recommend(model, split, [original, forgotten])
    # A condition sees the AUC that the choice sees, and its first run is that of γ = 1.
    auc = choice.to_dict()["seen"]["auc"]
    bound = 0.5 + abs(auc - 0.5) + 1e-6
    found = unlearn(model, split, method, until={"auc": bound})
    assert found.met
    assert len(found.tries) <= 1
    seen = recommend(model, split, [found]).to_dict()["seen"]
    assert seen["auc"] == pytest.approx(found.seen.auc, abs=1e-9)
    # Final scores come from data that steered nothing.
    assert found.auc == found.scores.auc
