from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from gradpivot import Classification, ForgetSplit, L1Sparse, Retrain, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestL1Sparse(MethodContract):
    method = L1Sparse(lr=0.05, epochs=40, alpha=0.02, batch_size=16)


class TestL1SparseAsPrinted(MethodContract):
    method = L1Sparse.protocol("paper", lr=0.05, epochs=40, alpha=0.02, batch_size=16)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def norm(model: torch.nn.Module) -> float:
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


def test_alpha_falls_linearly_to_zero():
    method = L1Sparse(alpha=0.04)
    assert [method.alpha_at(p) for p in (0, 0.25, 0.5, 1)] == [0.04, 0.03, 0.02, 0.0]


def test_the_penalty_in_the_recorded_loss_follows_the_schedule():
    """Weights that hardly move: what the recorded loss has over CE is α_t·‖θ‖₁ at each of the five steps."""
    shared = {"lr": 1e-12, "epochs": 5, "batch_size": 80, "momentum": 0.0}
    plain, penalised = (
        unlearn(trained(), split(), L1Sparse(alpha=alpha, **shared)).history["retain_loss"] for alpha in (0.0, 0.1)
    )
    extra = [p - q for p, q in zip(penalised, plain, strict=True)]
    expected = [0.1 * share * norm(trained()) for share in (1, 0.75, 0.5, 0.25, 0)]
    assert extra == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_one_step_is_the_gradient_plus_alpha_sign():
    shared = {"epochs": 1, "batch_size": 200, "momentum": 0.0, "max_norm": None, "lr": 0.01}
    plain, penalised = (unlearn(trained(), split(), L1Sparse(alpha=a, **shared)).model for a in (0.0, 0.3))
    for original, p, q in zip(trained().parameters(), plain.parameters(), penalised.parameters(), strict=True):
        torch.testing.assert_close(q - p, -0.01 * 0.3 * original.sign(), rtol=1e-3, atol=1e-6)


def test_without_penalty_it_is_fine_tuning_on_the_retain_set():
    class FineTune(Retrain):
        def unlearn(self, model, task, split, loop):
            self.fit(model, task, split.train, split.retain_indices, loop)

    shared = {"lr": 0.01, "epochs": 2, "batch_size": 16, "weight_decay": 0.0, "schedule": "constant"}
    shared |= {"batchnorm": "frozen", "max_norm": 1.0}
    mine = unlearn(trained(), split(), L1Sparse(alpha=0.0, **shared))
    theirs = unlearn(trained(), split(), FineTune(**shared))
    assert mine.history["retain_loss"] == theirs.history["retain_loss"]
    for a, b in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.numeric
def test_more_alpha_is_more_sparse():
    def sparsity(alpha: float) -> float:
        model = unlearn(trained(), split(), L1Sparse(epochs=20, alpha=alpha, batch_size=16)).model
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        return float((weights.abs() < 0.01).double().mean())

    shares = [sparsity(alpha) for alpha in (0.0, 0.005, 0.02, 0.05)]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.4


def test_a_nan_in_the_forget_data_does_not_reach_it():
    features, labels = (tensor.clone() for tensor in blobs().tensors)
    features[labels == 0] = torch.nan
    poisoned = ForgetSplit.by_class(TensorDataset(features, labels), blobs(seed=1), 0)
    reached, clean = (
        Loop().run(L1Sparse(epochs=2), trained(), Classification(), chosen) for chosen in (poisoned, split())
    )
    assert reached.diverged is None
    for a, b in zip(reached.model.parameters(), clean.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_settings():
    assert len(L1Sparse.space()) == 20
    assert L1Sparse.uses_all_retain
    assert Retrain.uses_all_retain
    with pytest.raises(GradPivotError, match="alpha is -1"):
        L1Sparse(alpha=-1)
