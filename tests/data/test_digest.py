from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.utils.data import TensorDataset

from gradpivot.data import digest as module
from gradpivot.data.digest import cache_digest, dataset_digest
from gradpivot.data.split import ForgetSplit


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """How many tensors were gone through."""
    count: list[int] = []
    update = module._update
    monkeypatch.setattr(module, "_update", lambda *given: (count.append(1), update(*given)))
    return count


def dataset() -> TensorDataset:
    return TensorDataset(torch.arange(24, dtype=torch.uint8).reshape(8, 3), torch.arange(8) % 2)


def test_a_cached_digest_is_the_same_and_computed_once(passes):
    data = dataset()
    expected = dataset_digest(data)
    cache_digest(data)
    assert [dataset_digest(data) for _ in range(3)] == [expected] * 3
    assert len(passes) == 4  # two tensors before it was remembered, two once after


def test_splits_of_one_dataset_share_the_cached_digest(passes):
    train, test = dataset(), dataset()
    for data in (train, test):
        cache_digest(data)
    hashes = {ForgetSplit.by_class(train, test, c).hash for c in (0, 1)}
    assert len(hashes) == 2
    assert len(passes) == 4
    plain = ForgetSplit.by_class(dataset(), dataset(), 0)
    assert ForgetSplit.by_class(train, test, 0).hash == plain.hash


def test_what_torch_writes_is_noticed():
    data = dataset()
    cache_digest(data)
    before = dataset_digest(data)
    data.tensors[0][0, 0] = 99
    changed = dataset_digest(data)
    assert changed != before
    data.tensors = (data.tensors[0], data.tensors[1] + 1)
    assert dataset_digest(data) not in (before, changed)


def test_other_data_are_gone_through_each_time(passes):
    data = dataset()
    dataset_digest(data)
    data.tensors[0].numpy()[0, 0] = 99  # no counter sees this
    dataset_digest(data)
    assert len(passes) == 4
    with torch.inference_mode():
        assert dataset_digest(TensorDataset(torch.ones(2, 2)))


def test_remembering_keeps_nothing_alive():
    data = dataset()
    cache_digest(data)
    dataset_digest(data)
    gone = weakref.ref(data)
    del data
    gc.collect()
    assert gone() is None
