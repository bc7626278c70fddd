from __future__ import annotations

import numpy as np
import pytest
import torch

from gradpivot import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import predictions
from gradpivot.evaluate.relearning import (
    RELEARN_SHOTS,
    RELEARN_STEPS,
    mean_over_steps,
    relearn_plan,
    relearned_correctness,
)
from gradpivot.models import weights_digest
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import TinyNet, blobs, trained

TASK = Classification()


def predict(model, dataset, indices):
    return predictions(model, dataset, indices, TASK)


def relearned(model, split):
    return relearned_correctness(model, split, TASK, relearn_plan(split), predict).mean()


def by_class(classes=0) -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), classes)


@pytest.mark.parametrize(("classes", "count"), [(0, 1), ([0, 2], 2)])
def test_the_attacker_has_a_few_samples_of_every_class(classes, count):
    split = by_class(classes)
    plan = relearn_plan(split)
    given = np.setdiff1d(split.forget_indices, plan.rest)
    labels = blobs().tensors[1].numpy()[given]
    assert [int((labels == name).sum()) for name in np.unique(labels)] == [RELEARN_SHOTS] * count
    assert len(plan.batches) == RELEARN_STEPS[-1]
    for batch in plan.batches:
        np.testing.assert_array_equal(np.intersect1d(batch, split.forget_indices), given)
        assert np.isin(batch, split.retain_indices).sum() == len(given)
    assert plan.gradients == RELEARN_STEPS[-1] * 2 * RELEARN_SHOTS * count


def test_too_few_samples_are_refused():
    split = ForgetSplit.by_index(blobs(), blobs(seed=1), range(RELEARN_SHOTS))
    with pytest.raises(GradPivotError, match="RELEARN needs more than 5 forget samples; there are 5"):
        relearn_plan(split)


def test_a_model_that_never_forgot_has_nothing_to_relearn():
    assert relearned(trained(), by_class()) > 0.9


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_hidden_knowledge_returns_faster_than_it_is_learned(seed):
    hidden, split = trained(), by_class()
    with torch.no_grad():
        hidden.layers[-1].bias[0] -= 20
    torch.manual_seed(seed)
    fresh = TinyNet()
    assert predict(hidden.eval(), split.train, split.forget_indices).correct.mean() < 0.5
    assert relearned(hidden, split) < relearned(trained(), split)
    assert relearned(fresh, split) < relearned(trained(), split)


def test_model_and_random_state_stay():
    model, split = trained().train(), by_class()
    before, state = weights_digest(model), torch.get_rng_state()
    first, second = (relearned(model, split) for _ in range(2))
    assert first == second
    assert weights_digest(model) == before
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_mean_of_a_line_is_its_middle():
    curves = np.array([[step / RELEARN_STEPS[-1] for step in RELEARN_STEPS], [1.0] * len(RELEARN_STEPS)])
    assert mean_over_steps(curves) == pytest.approx([0.5, 1.0])
