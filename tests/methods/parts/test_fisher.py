from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from gradpivot import Classification, ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.parts.fisher import (
    SampleGradients,
    solve_cg,
    solve_woodbury,
    split_fisher,
    subtract_shortcut,
    unflatten_like,
)
from gradpivot.testing.problems import blobs, trained


class Net(nn.Module):
    """Float64, with what makes single-sample gradients go wrong: BatchNorm, dropout and a frozen weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))

    def forward(self, x):
        return self.layers(x)


class Stubborn(Net):
    """Control flow that depends on the data, which vmap refuses."""

    def forward(self, x):
        return self.layers(x if float(x.sum()) > -1e9 else -x)


def problem(seed: int = 0, kind: type[Net] = Net, m: int = 11):
    torch.manual_seed(seed)
    model = kind().double().eval()
    model.layers[1].running_mean.normal_()
    model.layers[0].bias.requires_grad_(False)
    x, y = torch.randn(m, 4, dtype=torch.float64), torch.randint(3, (m,))
    batches = [(x[:4], y[:4]), (x[4:9], y[4:9]), (x[9:], y[9:])]
    return model, x, y, SampleGradients(model, Classification(), batches)


def rows(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """G by one ordinary backward pass a sample."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return np.stack(
        [
            torch.cat(
                [
                    g.reshape(-1)
                    for g in torch.autograd.grad(
                        nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]), trainable
                    )
                ]
            ).numpy()
            for i in range(len(x))
        ]
    )


@pytest.mark.parametrize("kind", [Net, Stubborn])
def test_single_sample_gradients(kind):
    model, x, y, samples = problem(kind=kind)
    np.testing.assert_allclose(samples.dense().numpy(), rows(model, x, y), atol=1e-14)
    assert samples.shape == (11, 6 * 4 + 2 * 6 + 3 * 6 + 3)
    assert samples.bytes == 11 * 57 * 8


def test_products_without_the_matrix():
    model, x, y, samples = problem()
    matrix = rows(model, x, y)
    u, w = torch.randn(57, dtype=torch.float64), torch.randn(11, dtype=torch.float64)
    np.testing.assert_allclose(samples.times(u).numpy(), matrix @ u.numpy(), atol=1e-13)
    np.testing.assert_allclose(samples.transposed_times(w).numpy(), matrix.T @ w.numpy(), atol=1e-13)


def test_inputs_of_other_kinds():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3).double()

        def forward(self, first, second):
            return {"logits": self.linear(first + second)}

    x, y, model = torch.randn(5, 4, dtype=torch.float64), torch.arange(5) % 3, Two()
    plain = SampleGradients(model.linear, Classification(), [(x, y)]).dense()
    halves = {"first": x / 2, "second": x / 2}
    for inputs in (halves, tuple(halves.values())):
        got = SampleGradients(model, Classification(adapter=lambda batch: batch), [(inputs, y)]).dense()
        torch.testing.assert_close(got, plain)


@given(seed=st.integers(0, 2**31), damping=st.floats(1e-4, 10), in_span=st.booleans())
@settings(max_examples=25, deadline=None)
def test_both_solvers_against_the_dense_inverse(seed, damping, in_span):
    model, x, y, samples = problem(seed)
    matrix = rows(model, x, y)
    random = np.random.default_rng(seed)
    vector = matrix.T @ random.normal(size=11) if in_span else random.normal(size=57)
    expected = np.linalg.solve(damping * np.eye(57) + matrix.T @ matrix / 11, vector)
    v, near = torch.from_numpy(vector), {"rtol": 0, "atol": 1e-8 * np.abs(expected).max()}
    np.testing.assert_allclose(solve_woodbury(samples.dense(), v, damping).numpy(), expected, **near)
    by_cg = solve_cg(samples, v, damping, tolerance=1e-13, iterations=300)
    np.testing.assert_allclose(by_cg.numpy(), expected, **near)


def test_float32_weights_lose_nothing_in_the_solution():
    """The Gram matrix is rounded to float32; the rounds on the residual are not."""
    random = np.random.default_rng(0)
    matrix = random.normal(size=(30, 80)).astype(np.float32)
    vector = matrix.T.astype(np.float64) @ random.normal(size=30)
    exact = matrix.astype(np.float64)
    expected = np.linalg.solve(1e-4 * np.eye(80) + exact.T @ exact / 30, vector)
    got = solve_woodbury(torch.from_numpy(matrix), torch.from_numpy(vector), 1e-4)
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_damping_below_rounding_error_is_refused():
    matrix = torch.ones(5, 9) * 1e3
    with pytest.raises(GradPivotError, match="damping is 1e-12, too small"):
        solve_woodbury(matrix, torch.randn(9, dtype=torch.float64), 1e-12)


def test_conjugate_gradients_that_do_not_converge_raise():
    _, _, _, samples = problem()
    v = torch.randn(57, dtype=torch.float64)
    with pytest.raises(GradPivotError, match=r"did not converge in 2 iterations.*increase iterations"):
        solve_cg(samples, v, 1e-6, tolerance=1e-9, iterations=2)
    assert not solve_cg(samples, 0 * v, 1e-6, tolerance=1e-9, iterations=2).any()


@given(seed=st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_the_shortcut_is_the_recursion_of_the_literature(seed):
    model, x, y, samples = problem(seed)
    matrix, m = rows(model, x, y), 11
    vector = np.random.default_rng(seed).normal(size=57)
    o, k = matrix[0].copy(), vector.copy()
    for g in matrix[1:]:
        t = o @ g
        k = k - (k @ g) / (m + t) * o
        o = o - t / (m + t) * o
    got = subtract_shortcut(samples, torch.from_numpy(vector)).numpy()
    np.testing.assert_allclose(got, k, atol=1e-12)


def test_the_shortcut_never_leaves_the_line_through_its_first_gradient():
    model, x, y, samples = problem()
    vector = torch.randn(57, dtype=torch.float64)
    change = (subtract_shortcut(samples, vector) - vector).numpy()
    first = rows(model, x, y)[0]
    cosine = change @ first / np.linalg.norm(change) / np.linalg.norm(first)
    assert abs(cosine) == pytest.approx(1, abs=1e-10)
    # What it stands for does leave it.
    whole = (solve_woodbury(samples.dense(), vector, 1.0) - vector).numpy()
    assert abs(whole @ first / np.linalg.norm(whole) / np.linalg.norm(first)) < 0.99


def test_vectors_go_back_into_shapes():
    parameters = [torch.zeros(2, 3), torch.zeros(4, dtype=torch.float64)]
    first, second = unflatten_like(parameters, torch.arange(10, dtype=torch.float64))
    assert (first.shape, first.dtype, second.tolist()) == ((2, 3), torch.float32, [6, 7, 8, 9])


def test_fisher_diagonals_of_a_split_are_mean_squares_of_single_samples():
    """Of each set on its own; fewer samples are chosen by the seed."""
    model, split = trained().double(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    model.layers[0].bias.requires_grad_(False)
    inputs, labels = blobs().tensors
    data = torch.utils.data.TensorDataset(inputs.double(), labels)
    double = ForgetSplit.by_class(data, data, 0)
    parameters = [p for p in model.parameters() if p.requires_grad]
    diagonals = split_fisher(model, Classification(), double, Loop(), samples=100)
    for found, indices in zip(diagonals, (split.forget_indices, split.retain_indices), strict=True):
        rows = [
            torch.autograd.grad(nn.functional.cross_entropy(model(inputs[[i]].double()), labels[[i]]), parameters)
            for i in indices
        ]
        for square, *column in zip(found, *rows, strict=True):
            torch.testing.assert_close(square, torch.stack(column).square().mean(0))
    few = [split_fisher(model, Classification(), double, Loop(seed=seed), samples=5)[0][0] for seed in (0, 0, 1)]
    assert torch.equal(few[0], few[1])
    assert not torch.equal(few[0], few[2])
