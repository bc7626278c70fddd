from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit, score
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import PredictionCache, _batch_size, evaluate, fixed_subset, predictions
from gradpivot.evaluate.classifiers.membership import threshold_attack
from gradpivot.testing.problems import blobs, trained


def split(kind: str = "class") -> ForgetSplit:
    train, test = blobs(), blobs(seed=1)
    return ForgetSplit.by_class(train, test, 0) if kind == "class" else ForgetSplit.random(train, test, 0.2)


@pytest.mark.parametrize("kind", ["class", "random"])
def test_accuracies_are_the_plain_ones(kind):
    chosen, model = split(kind), trained()
    told = evaluate(model, chosen, Classification())
    with torch.no_grad():
        train = (model(chosen.train.tensors[0]).argmax(1) == chosen.train.tensors[1]).numpy()
        test = (model(chosen.test.tensors[0]).argmax(1) == chosen.test.tensors[1]).numpy()
    kept = chosen.test_labels != 0 if kind == "class" else np.ones(len(test), bool)
    assert told.ra == train[chosen.retain_indices].mean()
    assert told.ua == pytest.approx(1 - train[chosen.forget_indices].mean())
    assert told.ta == test[kept].mean()
    assert (told.n_forget, told.n_retain, told.n_test) == (
        len(chosen.forget_indices), len(chosen.retain_indices), kept.sum(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["class", "random"])
def test_one_forward_pass_serves_everything(kind):
    model, seen = trained(), 0

    def count(module, inputs):
        nonlocal seen
        seen += len(inputs[0])

    model.register_forward_pre_hook(count)
    chosen = split(kind)
    score(model, chosen)
    # The checks before it look at two samples of each set.
    assert seen == 4 + len(chosen.train) + len(chosen.test_indices)


def test_members_are_as_many_as_test_samples_in_scope(monkeypatch):
    asked = {}

    def spy(members, nonmembers, forget):
        asked.update(members=len(members), nonmembers=len(nonmembers), forget=len(forget))
        return threshold_attack(members, nonmembers, forget)

    monkeypatch.setattr("gradpivot.evaluate.classifiers.membership.threshold_attack", spy)
    features, labels = blobs().tensors
    chosen = ForgetSplit.by_class(blobs(), (features[:30], labels[:30]), 0)
    score(trained(), chosen)
    assert asked == {"members": 20, "nonmembers": 20, "forget": 40}


def test_modes_come_back_and_dropout_is_off():
    model = trained().train()
    first, second = score(model, split()), score(model, split())
    assert first == second
    assert model.training


def test_predictions_keep_the_order():
    indices = np.array([5, 3, 100])
    told = predictions(trained(), blobs(), indices, Classification())
    with torch.no_grad():
        expected = trained()(blobs().tensors[0][indices]).double().softmax(1)
    labels = blobs().tensors[1][indices]
    assert told.confidence == pytest.approx(expected[range(3), labels].numpy())


def test_a_model_with_nan_outputs_is_explained():
    model = trained()
    with torch.no_grad():
        model.layers[4].bias[0] = math.nan
    with pytest.raises(GradPivotError, match="not finite"):
        score(model, split())


@pytest.mark.numeric
def test_a_retrained_model_of_the_class_looks_forgotten_and_the_original_does_not():
    told = score(trained(), split())
    assert told.ua < 0.1
    assert told.mia < 0.9


def test_a_part_of_the_retain_set_is_the_same_for_every_model():
    chosen, model = split(), trained()
    part = fixed_subset(chosen.retain_indices, 40)
    assert len(set(part)) == 40
    assert set(part) < set(chosen.retain_indices)
    assert np.array_equal(part, fixed_subset(chosen.retain_indices, 40))
    told = evaluate(model, chosen, Classification(), retain_scored=40)
    with torch.no_grad():
        right = model(chosen.train.tensors[0][part]).argmax(1) == chosen.train.tensors[1][part]
    assert told.ra == right.double().mean().item()
    whole = evaluate(model, chosen, Classification())
    assert (told.n_retain, told.ua, told.ta) == (40, whole.ua, whole.ta)
    low, high = told.interval("ra")
    assert high - low > np.subtract(*reversed(whole.interval("ra")))


@pytest.mark.parametrize("count", [None, 10**6])
def test_all_of_the_retain_set_is_scored_otherwise(count):
    chosen = split()
    assert np.array_equal(fixed_subset(chosen.retain_indices, count), chosen.retain_indices)


class Images(torch.nn.Module):
    """A convolution with BatchNorm: what evaluation makes a faster copy of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 2, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(features.reshape(-1, 1, 2, 2)))).flatten(1))


def images(seed: int = 0) -> Images:
    torch.manual_seed(seed)
    model = Images()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    features, labels = blobs().tensors
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    return model.eval()


class Counting(Classification):
    """Counts samples."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "seen", [])

    def predict(self, model, batch):
        self.seen.append(len(batch[1]))
        return super().predict(model, batch)


def test_the_same_model_gives_the_same_bits():
    indices = np.arange(120)
    first, second = (predictions(images(), blobs(), indices, Classification()) for _ in range(2))
    assert (first.confidence == second.confidence).all()


def test_known_predictions_are_shared_by_splits_of_the_same_data():
    train, test = blobs(), blobs(seed=1)
    model, cache, task = trained(), PredictionCache(), Counting()
    for c in range(3):
        chosen = ForgetSplit.by_class(train, test, c)
        assert evaluate(model, chosen, task, cache=cache) == evaluate(model, chosen, Classification())
    assert sum(task.seen) == len(train) + len(test)


def test_known_predictions_are_found_again_for_the_same_data_in_other_objects():
    """Every split wraps the arrays in a new data set."""
    model, cache, task = trained(), PredictionCache(), Counting()
    for c in range(3):
        train, test = (tuple(tensor.numpy() for tensor in blobs(seed=seed).tensors) for seed in (0, 1))
        evaluate(model, ForgetSplit.by_class(train, test, c), task, cache=cache)
    assert sum(task.seen) == len(blobs()) + len(blobs(seed=1))


@pytest.mark.parametrize("data_id", [None, "blobs"])
def test_known_predictions_are_not_those_of_half_of_the_test_set(data_id):
    model, cache = trained(), PredictionCache()
    whole = ForgetSplit.by_class(blobs(), blobs(seed=1), 0, data_id=data_id)
    for chosen in (whole, whole.with_validation()):
        assert evaluate(model, chosen, Classification(), cache=cache) == evaluate(model, chosen, Classification())


def test_other_data_are_not_served_known_predictions():
    model, cache = trained(), PredictionCache()
    for seed in (1, 2):
        chosen = ForgetSplit.by_class(blobs(seed=seed), blobs(seed=1), 0)
        assert evaluate(model, chosen, Classification(), cache=cache) == evaluate(model, chosen, Classification())


def test_known_predictions_of_a_part_are_not_made_from_all_of_it():
    model, cache, task, chosen = trained(), PredictionCache(), Counting(), split()
    told = evaluate(model, chosen, task, retain_scored=10, cache=cache)
    assert told == evaluate(model, chosen, Classification(), retain_scored=10)
    assert sum(task.seen) == 40 + 10 + len(chosen.test)


@pytest.mark.parametrize("change", ["weight", "data", "buffer", "loaded"])
def test_a_changed_model_is_not_served_old_predictions(change):
    model, cache, chosen = copy.deepcopy(trained()), PredictionCache(), split()
    before = evaluate(model, chosen, Classification(), cache=cache)
    with torch.no_grad():
        if change == "weight":
            model.layers[0].weight.mul_(-1)
        elif change == "data":
            model.layers[0].weight.data.mul_(-1)  # leaves no trace in the tensor's version
        elif change == "buffer":
            model.layers[1].running_mean.add_(5)
        else:
            model.load_state_dict({name: t * -1 for name, t in model.state_dict().items()} | {
                "layers.1.running_var": model.layers[1].running_var
            })  # fmt: skip
    after = evaluate(model, chosen, Classification(), cache=cache)
    assert after == evaluate(model, chosen, Classification())
    assert after != before


def test_the_batch_is_a_function_of_the_data():
    cpu = torch.device("cpu")
    assert _batch_size(TensorDataset(torch.zeros(1, 3, 32, 32, dtype=torch.uint8)), cpu) == 64
    assert _batch_size(TensorDataset(torch.zeros(1, 4)), cpu) == 512
    assert _batch_size(TensorDataset(torch.zeros(1, 3, 224, 224)), cpu) == 8
    assert _batch_size([(1, 2)], cpu) == 64
    assert _batch_size(TensorDataset(torch.zeros(1, 3, 224, 224)), torch.device("meta")) == 512
