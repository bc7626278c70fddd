from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from gradpivot.geometry.gramian import PIECE, Gram, change_along, gram_of, pieces_of

SHAPES = [(3, 4), (7,), (), (PIECE + 5,), (2, PIECE), (1,)]


def tensors(seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=generator)).to(dtype) for shape in SHAPES]


def flat(gradient: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([g.double().reshape(-1) for g in gradient]).numpy()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_equals_the_flattened_products(dtype):
    f, r = tensors(0, dtype), tensors(1, dtype)
    u, v = flat(f), flat(r)
    assert gram_of(f, r) == pytest.approx((u @ u, v @ v, u @ v), rel=1e-12)


def test_gradients_of_one_piece_give_the_same_bits_as_in_pieces():
    generator = torch.Generator().manual_seed(0)
    f, r = ([torch.randn(shape, generator=generator) for shape in ((3, 4), (7,), ())] for _ in range(2))
    absent = None
    # A parameter that neither loss depends on takes the general way.
    assert gram_of(f, r) == gram_of([*f, absent], [*r, absent])


def test_none_counts_as_zero():
    f, r = tensors(0), tensors(1)
    f[0], r[1], f[3], f[5], r[5] = None, None, None, None, None
    zeroed = [[t if t is not None else torch.zeros(s) for t, s in zip(g, SHAPES, strict=True)] for g in (f, r)]
    assert gram_of(f, r) == pytest.approx(gram_of(*zeroed), rel=1e-12)
    assert gram_of([None], [None]) == (0, 0, 0)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_side_that_is_not_there_at_all(missing):
    """One loss was asked for: its products are those with zeros in the other's place, in any mixture of sizes."""
    shapes = [(3,), (PIECE + 7,), (5, 4), (), (2, PIECE // 2)]
    there = [torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i, shape in enumerate(shapes)]
    there[2] = None
    sides = [there, there]
    sides[missing] = [None] * len(there)
    zeros = [there, there]
    zeros[missing] = [None if t is None else torch.zeros_like(t) for t in there]
    assert gram_of(*sides) == pytest.approx(gram_of(*zeros), rel=1e-12)
    assert gram_of(*sides)[missing] == gram_of(*sides).fr == 0
    before, after = [torch.ones(shape) for shape in shapes], [torch.full(shape, 1.5) for shape in shapes]
    squared, *along = change_along(before, after, *sides)
    assert squared == pytest.approx(0.25 * sum(t.numel() for t in before))
    assert along[missing] == 0
    expected = sum(0.5 * float(t.double().sum()) for t in there if t is not None)
    assert along[1 - missing] == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_float32_gradients_are_accumulated_in_float64():
    """In float32 a million products of 1e-3 lose digits that nearly opposed gradients need."""
    f = [torch.full((1_000_000,), 1e-3)]
    r = [-f[0] * (1 + 1e-4)]
    exact = float(np.float64(np.float32(1e-3)) ** 2 * 1_000_000)
    assert gram_of(f, r).ff == pytest.approx(exact, rel=1e-13)


def test_inputs_are_left_alone():
    f, r = tensors(0), tensors(1)
    copies = [[t.clone() for t in g] for g in (f, r)]
    gram_of(f, r)
    assert all(torch.equal(a, b) for g, c in zip((f, r), copies, strict=True) for a, b in zip(g, c, strict=True))


# Below 1e-100 the squares of the oracle, not ours, underflow to zero.
weights = st.one_of(st.just(0.0), st.floats(1e-100, 3), st.floats(-3, -1e-100))


@settings(deadline=None)
@given(weights, weights, st.integers(0, 1000), st.floats(1e-12, 1e12))
def test_norm_of_a_combination(a, b, seed, scale):
    rng = np.random.default_rng(seed)
    f, r = rng.standard_normal(5) * scale, rng.standard_normal(5)
    gram = Gram(f @ f, r @ r, f @ r)
    largest = abs(a) * np.linalg.norm(f) + abs(b) * np.linalg.norm(r)
    assert gram.norm_of(a, b) == pytest.approx(np.linalg.norm(a * f + b * r), rel=1e-9, abs=1e-7 * largest)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_change_along(dtype):
    before, after, u, v = (tensors(seed, dtype) for seed in range(4))
    u[2] = None
    size, along_u, along_v = change_along(before, after, u, v)
    change = flat(after) - flat(before)
    u[2] = torch.zeros(())
    assert size == pytest.approx(change @ change, rel=1e-10)
    assert along_u == pytest.approx(change @ flat(u), rel=1e-9)
    assert along_v == pytest.approx(change @ flat(v), rel=1e-9)
    # Only looked at: what is measured are a model's weights.
    for seed, looked_at in enumerate((before, after)):
        assert all(torch.equal(t, same) for t, same in zip(looked_at, tensors(seed, dtype), strict=True))


def test_pieces_are_views_in_any_layout():
    image = torch.randn(300, 32, 3, 3).to(memory_format=torch.channels_last)
    pieces = pieces_of(image)
    assert len(pieces) > 1
    assert all(piece.numel() <= PIECE for piece in pieces)
    assert sum(piece.numel() for piece in pieces) == image.numel()
    for piece in pieces:
        piece.zero_()
    assert not image.any()


def test_channels_last_gradients_give_the_same_products():
    f, r = torch.randn(2, 300, 32, 3, 3).unbind()
    last = [t.to(memory_format=torch.channels_last) for t in (f, r)]
    assert gram_of([last[0]], [last[1]]) == pytest.approx(gram_of([f], [r]), rel=1e-12)
    assert gram_of([last[0]], [r]) == pytest.approx(gram_of([f], [r]), rel=1e-12)


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1)])
def test_the_layout_in_memory_does_not_matter(order):
    """Sides that lie alike are read as they lie; sides that do not are read in the order of their axes."""
    plain = torch.randn(4, 40, 20, 9, 11, dtype=torch.float64).unbind()
    back = sorted(range(4), key=order.__getitem__)
    laid = [t.permute(order).contiguous().permute(back) for t in plain]
    assert not laid[0].is_contiguous()
    exact = change_along(*([t] for t in plain))
    assert change_along(*([t] for t in laid)) == pytest.approx(exact, rel=1e-12)
    assert change_along([plain[0]], *([t] for t in laid[1:])) == pytest.approx(exact, rel=1e-12)
    assert change_along([laid[0]], [laid[1]], [None], [laid[3]]) == pytest.approx((exact[0], 0, exact[2]), rel=1e-12)
