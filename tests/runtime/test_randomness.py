from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from gradpivot.runtime.randomness import (
    _devices,
    derive,
    draw_labels,
    draw_strata,
    drawing_for,
    isolated,
    reseed,
    rewinder,
)


def draw() -> tuple[float, float, float]:
    return torch.rand(1).item(), np.random.rand(), random.random()


def test_isolated_restores_every_generator_even_after_an_error():
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = draw()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    with pytest.raises(ZeroDivisionError), isolated(7):
        _ = draw()[0] / 0
    assert draw() == expected


def test_rewound_generators_draw_the_same_again():
    cpu = torch.device("cpu")
    with isolated(7), drawing_for(0, 3, 3, 5):
        draw()
        draw_labels(100, 3, cpu)
        rewind = rewinder()
        for _ in range(2):
            first = draw(), draw_labels(100, 3, cpu).tolist()
            rewind()
            assert (draw(), draw_labels(100, 3, cpu).tolist()) == first
            rewind()


def test_isolated_is_seeded():
    with isolated(7):
        first = draw()
    with isolated(7):
        assert draw() == first


def test_a_torch_without_distributed_has_no_group(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert _devices() is None


@pytest.fixture
def mps(monkeypatch) -> torch.Generator:
    """A CPU generator behind torch.mps's functions, standing in for an Apple GPU."""
    generator = torch.Generator().manual_seed(1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "_is_in_bad_fork", lambda: False)
    monkeypatch.setattr(torch.mps, "manual_seed", generator.manual_seed)
    monkeypatch.setattr(torch.mps, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", generator.set_state)
    return generator


def drawn_from(generator: torch.Generator) -> float:
    return torch.rand(1, generator=generator).item()


def test_an_apple_gpu_is_seeded_isolated_and_rewound(mps):
    expected = drawn_from(torch.Generator().manual_seed(1))
    with isolated(7):
        rewind = rewinder()
        first = drawn_from(mps)
        rewind()
        assert drawn_from(mps) == first
        reseed(8)
        assert drawn_from(mps) != first
        reseed(7)
        assert drawn_from(mps) == first
    assert drawn_from(mps) == expected


def test_a_forked_process_leaves_the_apple_gpu_alone(mps, monkeypatch):
    """Data-loading processes reseed for every sample."""
    monkeypatch.setattr(torch.mps, "_is_in_bad_fork", lambda: True)
    before = mps.get_state()
    with isolated(7):
        rewinder()()
    assert torch.equal(mps.get_state(), before)


def test_derived_seeds_differ_and_are_stable():
    seeds = {derive(0), derive(1), derive(0, "a"), derive(0, "a", 1), derive(0, "a1"), derive(0, "a", 2)}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(0, "step", 3) == derive(0, "step", 3)


@given(st.integers(1, 40), st.integers(1, 1000), st.integers(0, 1000))
def test_strata_are_in_range_and_one_in_each_part(count, levels, seed):
    with isolated(seed):
        drawn = draw_strata(levels, count, torch.device("cpu"))
    assert drawn.min() >= 0
    assert drawn.max() < levels
    parts = drawn.sort().values * count / levels
    numbers = torch.arange(count)
    # Flooring lowers a value by at most 1/levels of the range.
    assert bool(((parts <= numbers + 1) & (parts > numbers - count / levels - 1e-9)).all())


def test_a_stratified_level_is_uniform_for_each_sample():
    with isolated(0):
        drawn = torch.stack([draw_strata(5, 3, torch.device("cpu")) for _ in range(6000)])
    for column in drawn.T:
        shares = torch.bincount(column, minlength=5) / 6000
        torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.025, rtol=0)


def test_several_processes_draw_the_strata_of_one():
    cpu = torch.device("cpu")
    with drawing_for(0, 7, 7, 3):
        whole = draw_strata(1000, 7, cpu)
    with drawing_for(0, 4, 7, 3):
        first = draw_strata(1000, 4, cpu)
    with drawing_for(4, 7, 7, 3):
        second = draw_strata(1000, 3, cpu)
    assert torch.equal(whole, torch.cat([first, second]))
