from __future__ import annotations

import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from gradpivot.data import loader as loading
from gradpivot.data.loader import Collated, Loader
from gradpivot.errors import GradPivotError
from gradpivot.runtime.randomness import derive, isolated

CPU = torch.device("cpu")
ORDER = [np.array([2, 0]), np.array([1, 3, 4])]
Sample = namedtuple("Sample", "x y")


class Augmented(Dataset):
    """Draws from all three global generators, as people's transforms do."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Sample:
        noise = torch.rand(1).item() + np.random.rand() + random.random()
        return Sample(torch.tensor([index + noise]), {"y": index})


def test_resident_tensors_are_indexed():
    dataset = TensorDataset(torch.arange(5.0), torch.arange(5))
    batches = list(Loader(dataset, CPU, seed=0).batches(ORDER, epoch=0))
    assert batches[1][0].tolist() == [1, 3, 4]
    assert batches[0][1].tolist() == [2, 0]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_augmentation_depends_on_seed_epoch_and_sample_only(workers):
    def drawn(seed: int, epoch: int, workers: int) -> list[float]:
        batches = Loader(Augmented(), CPU, seed, workers).batches(ORDER, epoch)
        return [x for batch in batches for x in batch.x.flatten().tolist()]

    reference = drawn(0, 0, 0)
    assert drawn(0, 0, workers) == reference
    assert drawn(0, 1, workers) != reference
    assert drawn(1, 0, workers) != reference


def test_streaming_leaves_the_callers_randomness_alone():
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    batch = next(iter(Loader(Augmented(), CPU, seed=0).batches(ORDER, 0)))
    assert batch.y["y"].tolist() == [2, 0]
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert states[2] == random.getstate()


def test_a_subclass_that_changes_its_samples_is_not_bypassed():
    class Zeroed(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x * 0, y

    dataset = Zeroed(torch.ones(5), torch.arange(5))
    assert not next(iter(Loader(dataset, CPU, seed=0).batches(ORDER, 0)))[0].any()


def test_a_subset_of_tensors_is_resident():
    dataset = Subset(TensorDataset(torch.arange(9.0), torch.arange(9)), [8, 7, 6, 5, 4])
    loader = Loader(dataset, CPU, seed=0)
    assert loader._resident is not None
    assert next(iter(loader.batches(ORDER, 0)))[1].tolist() == [6, 8]


def test_a_batch_is_fenced_once_and_every_sample_seeded(monkeypatch):
    fences = []

    def fence(seed=None):
        fences.append(seed)
        return isolated(seed)

    monkeypatch.setattr(loading, "isolated", fence)
    drawn = [x for batch in Loader(Augmented(), CPU, 3).batches(ORDER, 2) for x in batch.x.flatten().tolist()]
    assert len(fences) == len(ORDER)
    alone = []
    for index in np.concatenate(ORDER).tolist():
        with isolated(derive(3, "sample", 2, index)):
            alone.append(Augmented()[index].x.item())
    assert drawn == alone


def test_an_error_in_a_sample_gives_the_callers_randomness_back():
    class Broken(Augmented):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            if index == 0:
                raise ZeroDivisionError
            return sample

    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with pytest.raises(ZeroDivisionError):
        next(iter(Loader(Broken(), CPU, seed=0).batches(ORDER, 0)))
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert states[2] == random.getstate()


def test_a_number_of_workers_that_cannot_be_is_told():
    with pytest.raises(GradPivotError, match="workers is -1"):
        Loader(Augmented(), CPU, 0, -1)


RAGGED = [(torch.arange(n), n % 2) for n in (1, 2, 3, 2, 1)]


def pad(samples):
    inputs, labels = zip(*samples, strict=True)
    return torch.nn.utils.rnn.pad_sequence(list(inputs), batch_first=True), torch.tensor(labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_ragged_samples_need_a_collate_fn(workers):
    with pytest.raises(GradPivotError, match=r"^the samples cannot be stacked .* collate_fn=pad\)$") as refused:
        list(Loader(RAGGED, CPU, 0, workers).batches(ORDER, 0))
    assert "\n" not in str(refused.value)
    for dataset in (Collated(RAGGED, pad), Subset(Collated(RAGGED, pad), range(5))):
        first, second = Loader(dataset, CPU, 0, workers).batches(ORDER, 0)
        assert first[0].tolist() == [[0, 1, 2], [0, 0, 0]]
        assert second[1].tolist() == [0, 0, 1]


def test_a_collate_fn_is_called_for_tensors_too():
    dataset = Collated(TensorDataset(torch.arange(5.0)), lambda samples: -torch.stack([x for (x,) in samples]))
    assert next(Loader(dataset, CPU, 0).batches(ORDER, 0)).tolist() == [-2, 0]
