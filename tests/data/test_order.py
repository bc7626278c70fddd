from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gradpivot.data.order import batch_count, cut, default_batch_size, paired_order, shuffled


@given(st.integers(1, 300), st.integers(1, 64))
def test_cut_keeps_every_sample_once_in_order(samples, size):
    batches = cut(np.arange(samples), size)
    assert np.array_equal(np.concatenate(batches), np.arange(samples))
    assert len(batches) == batch_count(samples, size)
    assert max(map(len, batches)) <= size + 1


@given(st.integers(2, 300), st.integers(2, 64))
def test_no_batch_of_one_sample(samples, size):
    assert min(map(len, cut(np.arange(samples), size))) > 1


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 20), st.integers(0, 9))
def test_pairs_have_equal_sizes_and_fresh_retain_samples(n_forget, n_retain, size, epoch):
    forget, retain = np.arange(n_forget), 1000 + np.arange(n_retain)
    f, r = paired_order(forget, retain, size, seed=3, epoch=epoch)
    assert [len(b) for b in f] == [len(b) for b in r]
    assert sorted(np.concatenate(f)) == sorted(forget)
    drawn = np.concatenate(r)
    assert set(drawn) <= set(retain)
    counts = np.bincount(drawn - 1000, minlength=n_retain)
    assert counts.max() - counts.min() <= 1  # none twice before all were had once


def test_retain_batches_of_their_own_size():
    f, r = paired_order(np.arange(10), np.arange(10, 40), 4, 0, 0, retain_batch_size=1000)
    assert len(f) == len(r) == 3
    assert all(sorted(batch) == list(range(10, 40)) for batch in r)


def test_order_depends_on_seed_and_epoch_only():
    a = paired_order(np.arange(50), np.arange(50, 200), 8, seed=1, epoch=2)
    b = paired_order(np.arange(50), np.arange(50, 200), 8, seed=1, epoch=2)
    c = paired_order(np.arange(50), np.arange(50, 200), 8, seed=1, epoch=3)
    assert all(np.array_equal(x, y) for side in (0, 1) for x, y in zip(a[side], b[side], strict=True))
    assert not np.array_equal(np.concatenate(a[1]), np.concatenate(c[1]))
    assert not np.array_equal(shuffled(np.arange(50), 1, "x"), shuffled(np.arange(50), 2, "x"))


@pytest.mark.parametrize(("samples", "size"), [(1, 8), (146, 8), (500, 32), (5000, 256), (10**6, 256)])
def test_default_batch_size(samples, size):
    assert default_batch_size(samples) == size
