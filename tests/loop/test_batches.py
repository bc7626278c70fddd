from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from gradpivot import CUP, ForgetSplit, Retrain
from gradpivot.loop.batches import Plan, paired_plan, plain_plan, sequential_plan
from gradpivot.testing.problems import blobs

SPLIT = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
RECIPES = [CUP(epochs=3), CUP(iterations=7), CUP(epochs=2, batch_size=7, retain_batch_size=5)]


def plans(recipe: CUP) -> list[Plan]:
    return [
        paired_plan(SPLIT, recipe, 0),
        sequential_plan(SPLIT, recipe, 0),
        plain_plan(SPLIT.retain_indices, recipe, 0),
    ]


def steps_from(plan: Plan, step: int) -> list[tuple[list[int], ...]]:
    """What each side of each step holds."""
    steps = chain.from_iterable(zip(*sides, strict=True) for _, sides in plan.epochs_from(step))
    return [tuple(side.tolist() for side in sides) for sides in steps]


@pytest.mark.parametrize("recipe", RECIPES)
def test_from_any_step_on_a_run_sees_the_same_batches(recipe):
    for plan in plans(recipe):
        whole = steps_from(plan, 0)
        assert len(whole) == plan.total
        for step in range(plan.total + 1):
            assert steps_from(plan, step) == whole[step:]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_smallest_batch_is_the_smallest(recipe):
    for plan in plans(recipe):
        epoch = chain.from_iterable(plan.order(0))
        assert min(map(len, epoch)) == plan.smallest


def test_an_epoch_sees_every_sample_it_is_about_once():
    recipe = CUP(batch_size=7)
    forget, _ = paired_plan(SPLIT, recipe, 0).order(1)
    assert np.array_equal(np.sort(np.concatenate(forget)), SPLIT.forget_indices)
    (both,) = sequential_plan(SPLIT, recipe, 0).order(1)
    assert np.array_equal(np.sort(np.concatenate(both)), np.arange(len(SPLIT.train)))
    (plain,) = plain_plan(SPLIT.retain_indices, Retrain(), 0).order(1)
    assert np.array_equal(np.sort(np.concatenate(plain)), SPLIT.retain_indices)


def test_where_a_step_stands_in_its_run():
    plan = sequential_plan(SPLIT, CUP(epochs=2, batch_size=7), 0)
    whole = steps_from(plan, 0)
    forgotten = set(SPLIT.forget_indices.tolist())
    assert [plan.forgets(step) for step in range(plan.total)] == [forgotten >= {*batch} for (batch,) in whole]
    assert [s for s in range(plan.total) if plan.ends_epoch(s)] == [plan.per_epoch - 1, plan.total - 1]
    assert [plan.epoch(step) for step in range(plan.total)] == [0] * plan.per_epoch + [1] * plan.per_epoch
    assert (plan.progress(0), plan.progress(plan.total - 1)) == (0, 1)
