from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gradpivot import IU, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods import iu
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


class TestIU(MethodContract):
    method = IU(alpha=3.0)  # α = 1 is on the brink on this problem


class TestIUByConjugateGradients(MethodContract):
    method = IU(alpha=3.0, solver="cg", samples=40)


class TestIUAsPrinted(MethodContract):
    method = IU.protocol("paper", alpha=100.0)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


def change(method: IU, seed: int = 0, model: nn.Module | None = None) -> torch.Tensor:
    model = model or trained()
    return weights(Loop(seed=seed).run(method, model, Classification(), split()).model) - weights(model)


def test_the_update_is_the_formula():
    """θ + α·H⁻¹·(n_f/N)(ḡ_f − ḡ_r), with everything dense, in float64."""
    model = trained().double()
    x, y = blobs().tensors
    data = torch.utils.data.TensorDataset(x.double(), y)
    double = ForgetSplit.by_class(data, data, 0)

    def gradient(of):
        loss = nn.functional.cross_entropy(model(x[of].double()), y[of])
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]).numpy()

    retain = double.retain_indices.copy()
    G = np.stack([gradient([i]) for i in retain])
    H = 0.02 * np.eye(G.shape[1]) + G.T @ G / len(retain)
    v = 40 / 120 * (gradient(double.forget_indices.copy()) - gradient(retain))
    expected = 0.3 * np.linalg.solve(H, v)
    for solver in ("woodbury", "cg", "auto"):
        method = IU(alpha=0.3, damping=0.02, solver=solver, tolerance=1e-12, batch_size=7)
        got = Loop().run(method, model, Classification(), double).model
        np.testing.assert_allclose((weights(got) - weights(model)).numpy(), expected, atol=1e-9)


@pytest.mark.numeric
def test_a_small_step_costs_the_forgotten_more_than_the_kept():
    def losses(model):
        x, y = blobs().tensors
        with torch.no_grad():
            each = nn.functional.cross_entropy(model.eval()(x), y, reduction="none")
        return float(each[y == 0].mean()), float(each[y != 0].mean())

    for solver in ("woodbury", "cg", "shortcut"):
        model = unlearn(trained(), split(), IU(alpha=1e-2, solver=solver)).model
        (f0, r0), (f1, r1) = losses(trained()), losses(model)
        assert f1 > f0
        assert f1 - f0 > r1 - r0


def test_linear_in_alpha():
    once, thrice = change(IU(alpha=0.5)), change(IU(alpha=1.5))
    torch.testing.assert_close(thrice, 3 * once, rtol=1e-4, atol=1e-6)
    assert not change(IU(alpha=0.0)).any()


def test_the_seed_chooses_the_samples_if_there_is_a_choice():
    some, all_of_them = IU(samples=20), IU(samples=80)
    assert torch.equal(change(some, seed=1), change(some, seed=1))
    assert not torch.equal(change(some, seed=1), change(some, seed=2))
    assert torch.equal(change(all_of_them, seed=1), change(all_of_them, seed=2))


def test_a_loss_of_the_tasks_own_changes_nothing():
    """IU is defined with cross-entropy: v and H must not be of different losses."""

    class Other(Classification):
        def retain_loss(self, model, batch):
            return 7 * super().retain_loss(model, batch)

    plain, other = (Loop().run(IU(), trained(), task, split()).model for task in (Classification(), Other()))
    assert torch.equal(weights(plain), weights(other))


def test_batches_change_rounding_only():
    torch.testing.assert_close(change(IU(batch_size=7)), change(IU(batch_size=256)), rtol=1e-3, atol=1e-5)


def test_the_history_is_one_step():
    history = unlearn(trained(), split(), IU(alpha=0.3)).history
    assert history["step"] == [0]
    assert history["forget_weight"] == history["retain_weight"] == [pytest.approx(0.1)]
    assert history["step_norm"][0] == pytest.approx(float(change(IU(alpha=0.3)).norm()), rel=1e-4)
    assert history["forget_loss"][0] < 0 < history["retain_loss"][0]
    assert history["delta_forget"][0] < 0


def test_progress_reaches_its_end():
    calls = []
    unlearn(trained(), split(), IU(batch_size=16), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 9) for i in range(10)]


def test_buffers_and_frozen_weights_stay():
    model = trained()
    model.layers[4].requires_grad_(False)
    result = unlearn(model, split(), IU(alpha=5.0)).model
    for name, value in model.state_dict().items():
        frozen = name.startswith("layers.4") or "running" in name or "tracked" in name
        assert torch.equal(value, result.state_dict()[name]) == frozen


def test_too_large_for_woodbury_names_the_way_out(monkeypatch):
    monkeypatch.setattr(iu, "WOODBURY_BYTES", 1000)
    with pytest.raises(GradPivotError, match=r"80 gradients of 163 weights take .* use solver='cg'"):
        unlearn(trained(), split(), IU(solver="woodbury"))
    by_cg = change(IU(solver="cg"))
    assert torch.equal(change(IU(solver="auto")), by_cg)


def test_an_update_beyond_the_range_of_the_weights_is_undone():
    result = unlearn(trained(), split(), IU(alpha=1e42))
    assert result.diverged == {"step": 0, "reason": "the update made a weight non-finite"}
    assert torch.equal(weights(result.model), weights(trained()))


def test_outputs_that_overflow_after_it_are_undone():
    result = unlearn(trained(), split(), IU(alpha=1e30))
    assert result.diverged == {"step": 0, "reason": "the outputs are not finite after the last step"}
    assert torch.equal(weights(result.model), weights(trained()))


def test_a_move_without_gradients_is_explained():
    with pytest.raises(GradPivotError, match=r"loop\.mean_gradients"):
        Loop().move([], None, None)


def test_another_task_is_refused():
    class Other:
        pass

    with pytest.raises(GradPivotError, match="IU only supports classification"):
        Loop().run(IU(), TinyNet(), Other(), split())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": -1}, "alpha is -1"),
        ({"damping": 0}, "damping is 0"),
        ({"samples": 0}, "samples is 0"),
        ({"tolerance": 1}, "tolerance is 1"),
        ({"solver": "lu"}, "choose one of auto"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(GradPivotError, match=message):
        IU(**wrong)


def test_paper_space_is_twenty_whole_numbers():
    assert [m.alpha for m in IU.space()] == list(range(1, 21))
    assert IU.space()[0].solver == "shortcut"
