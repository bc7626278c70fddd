from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gradpivot import ForgetSplit, Retrain, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import SetPredictions, predictions
from gradpivot.evaluate.recovery import RECOVERY_STEPS, recovered_correctness, recovery_batches, recovery_ways
from gradpivot.models import weights_digest
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import TinyNet, blobs, trained

TASK = Classification()


def predict(model, dataset, indices):
    return predictions(model, dataset, indices, TASK)


def by_class() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def recovered(model, split, predict=predict):
    return float(recovered_correctness(model, split, TASK, split.forget_indices, predict).mean())


def test_only_retained_samples_are_trained_on():
    split = by_class()
    batches = recovery_batches(split)
    assert [len(batch) for batch in batches] == [64] * RECOVERY_STEPS
    assert np.isin(np.concatenate(batches), split.retain_indices).all()


@pytest.mark.numeric
@pytest.mark.parametrize("seed", range(3))
def test_a_retrained_model_recovers_nothing_and_the_original_keeps_what_it_knows(seed):
    split = by_class()
    retrained = unlearn(trained(), split, Retrain(), factory=TinyNet, seed=seed).model
    assert recovered(retrained, split) <= 0.1
    assert recovered(trained(), split) >= 0.5


def test_batchnorm_is_tried_in_train_mode_and_frozen_and_the_worse_counts():
    split, seen = by_class(), []

    def scripted(model, dataset, indices):
        seen.append(model.layers[1].running_mean.clone())
        assert not model.training
        return SetPredictions(np.zeros(len(indices)), np.full(len(indices), len(seen) == 1))

    assert recovered(trained(), split, scripted) == 1.0
    in_training, frozen = seen
    assert torch.equal(frozen, trained().layers[1].running_mean)
    assert not torch.equal(in_training, frozen)


def test_without_batchnorm_there_is_one_way():
    assert recovery_ways(nn.Linear(4, 3)) == ("train",)
    assert recovery_ways(TinyNet()) == ("train", "frozen")


def test_model_and_random_state_stay():
    model, split = trained().train(), by_class()
    before, state = weights_digest(model), torch.get_rng_state()
    assert recovered(model, split) == recovered(model, split)
    assert weights_digest(model) == before
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_single_retained_sample_is_refused():
    data = blobs()
    split = ForgetSplit.by_index(data, blobs(seed=1), range(1, len(data)))
    with pytest.raises(GradPivotError, match="at least two retained samples"):
        recovery_batches(split)
