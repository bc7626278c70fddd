from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import SCRUB, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.parts.distillation import divergence
from gradpivot.runs import Running, run_method
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import Guarded, TinyNet, blobs, trained
from memorised import memorised, noisy, records


class TestSCRUB(MethodContract):
    method = SCRUB(lr=0.05, epochs=10, max_epochs=5, batch_size=8, retain_batch_size=16)


class TestSCRUBAsPrinted(MethodContract):
    method = SCRUB.protocol("paper", lr=0.05, epochs=10, max_epochs=5, batch_size=8, retain_batch_size=16)


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def sides(per_class: int = 40) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """D_f and D_r as batches."""
    inputs, labels = blobs(per_class).tensors
    return [(inputs[part], labels[part]) for part in (labels == 0, labels != 0)]


def histories(**settings) -> dict[str, list]:
    return unlearn(trained(), split(), SCRUB(**settings), factory=TinyNet).history


def test_only_the_first_epochs_have_max_steps():
    history = histories(epochs=3, max_epochs=2, batch_size=20, retain_batch_size=40)
    ascends = [loss is not None for loss in history["forget_loss"]]
    assert ascends == [True, True, False, False] * 2 + [False, False]
    assert [loss is None for loss in history["retain_loss"]] == ascends
    assert [a > 0 for a in history["forget_weight"]] == ascends
    # Steps are numbered by batch, and those without an ascent are left out.
    assert history["step"] == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]


def test_without_max_epochs_it_only_distils():
    history = histories(epochs=2, max_epochs=0, batch_size=20)
    assert all(loss is None for loss in history["forget_loss"])


def test_max_steps_leave_the_original_and_min_steps_lower_their_loss():
    """Alternating steps on all of D_f and D_r, in float64 and without momentum and dropout, so that each succeeds."""
    train, test = (TensorDataset(d.tensors[0].double(), d.tensors[1]) for d in (blobs(), blobs(seed=1)))
    original = trained().double()
    original.layers[3].p = 0.0
    forget, retain = [(inputs.double(), labels) for inputs, labels in sides()]

    def of(model: nn.Module, step: int, alpha: float) -> float:
        """KL(p_o ‖ p_θ) on D_f for a max step, α·KL(p_o ‖ p_θ) + CE on D_r for a min step."""
        task = Classification()
        if step % 2 == 0:
            return float(divergence(task, model, original, forget).detach())
        return float((alpha * divergence(task, model, original, retain) + task.retain_loss(model, retain)).detach())

    for alpha in (0.0, 1.0):
        settings = {"batch_size": 40, "retain_batch_size": 80, "momentum": 0.0, "max_epochs": 9, "lr": 0.05}
        data = ForgetSplit.by_class(train, test, 0)
        ends = [
            unlearn(original, data, SCRUB(iterations=steps, alpha=alpha, **settings)).model for steps in range(1, 9)
        ]
        # The first max step starts at p_θ = p_o, where KL is stationary.
        torch.testing.assert_close(ends[0].state_dict(), original.state_dict())
        for step in range(1, 8):
            before, after = (of(ends[i], step, alpha) for i in (step - 1, step))
            assert after < before if step % 2 else after > before


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_first_min_step_is_the_gradient_of_its_loss(alpha):
    data = ForgetSplit.by_class(blobs(per_class=4), blobs(seed=1), 0)
    plain = {"momentum": 0.0, "max_norm": None, "batch_size": 4, "retain_batch_size": 8, "max_epochs": 0}
    original = trained()
    original.layers[3].p = 0.0
    mine = unlearn(original, data, SCRUB(alpha=alpha, lr=0.1, epochs=2, **plain), factory=TinyNet).model
    expected, (_, retain) = copy.deepcopy(original), sides(4)
    for _ in range(2):
        expected.zero_grad()
        task = Classification()
        (alpha * divergence(task, expected, original, retain) + task.retain_loss(expected, retain)).backward()
        with torch.no_grad():
            for weight in expected.parameters():
                weight -= 0.1 * weight.grad
    for after, wanted in zip(mine.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(after, wanted, rtol=1e-4, atol=1e-6)


def test_what_a_run_takes():
    data = split()  # 40 samples to forget, 80 to keep
    assert SCRUB(epochs=5, max_epochs=3).gradients(data) == 3 * 40 + 5 * 80
    assert SCRUB(epochs=2, max_epochs=3).gradients(data) == 2 * (40 + 80)
    assert SCRUB(iterations=20, batch_size=10, retain_batch_size=20, max_epochs=9).gradients(data) == 20 * 15


REWINDING = SCRUB(lr=0.3, epochs=6, max_epochs=6, batch_size=8, retain_batch_size=32, rewind=True)


def rewinding_split() -> ForgetSplit:
    return records().with_validation()


def test_rewinding_returns_the_end_of_an_epoch():
    """The result is, to the bit, that of a run as long as the note says."""
    data = rewinding_split()
    rewound = run_method(memorised(), data, REWINDING)
    plain = [
        run_method(memorised(), data, SCRUB(**{**fields(REWINDING), "rewind": False, "iterations": steps})).model
        for steps in epoch_ends(data)
    ]
    wanted = held_out_error(plain[-1], data)
    gaps = [abs(forget_error(model, data) - wanted) for model in plain]
    best = max(i for i, gap in enumerate(gaps) if gap == min(gaps))
    for mine, theirs in zip(rewound.model.parameters(), plain[best].parameters(), strict=True):
        assert torch.equal(mine, theirs)
    expected = "not rewound" if best == len(plain) - 1 else f"rewound to the end of epoch {best + 1}"
    assert rewound.note.startswith(expected)


def fields(method: SCRUB) -> dict:
    return {name: value for name, value in method.to_dict().items() if name != "method"}


def epoch_ends(data: ForgetSplit) -> list[int]:
    steps = -(-len(data.forget_indices) // 8) + -(-len(data.retain_indices) // 32)
    return [steps * epoch for epoch in range(1, 7)]


def forget_error(model: nn.Module, data: ForgetSplit) -> float:
    inputs, labels = data.train.tensors
    chosen = torch.from_numpy(np.array(data.forget_indices))
    return float((model(inputs[chosen]).argmax(1) != labels[chosen]).double().mean())


def held_out_error(model: nn.Module, data: ForgetSplit) -> float:
    """Error on the validation data, with the labels in the proportions of D_f."""
    forgotten = data.train.tensors[1][torch.from_numpy(np.array(data.forget_indices))]
    inputs, labels = (
        torch.stack(part) for part in zip(*map(data.validation.__getitem__, range(len(data.validation))), strict=True)
    )
    wrong = (model(inputs).argmax(1) != labels).double()
    return float(sum((forgotten == c).double().mean() * wrong[labels == c].mean() for c in (0, 1)))


def test_an_interrupted_run_rewinds_as_an_uninterrupted_one(tmp_path):
    def stop(done, total):
        if done == 2 * total // 3:
            raise KeyboardInterrupt

    data, path = rewinding_split(), tmp_path / "checkpoint.pt"
    whole = run_method(memorised(), data, REWINDING)
    with pytest.raises(KeyboardInterrupt):
        run_method(memorised(), data, REWINDING, Running(checkpoint=path, checkpoint_seconds=0, progress=stop))
    resumed = run_method(memorised(), data, REWINDING, Running(checkpoint=path, checkpoint_seconds=0))
    assert resumed.note == whole.note
    assert resumed.history == whole.history
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_rewinding_never_reads_the_test_data():
    test = Guarded(torch.zeros(9, 12), torch.zeros(9, dtype=torch.long))
    data = ForgetSplit.random(noisy(240, 0), test, fraction=0.2, validation=noisy(100, 1), data_id="guarded")
    assert "rewound" in Loop().run(REWINDING, memorised(), Classification(), data).note


def test_rewinding_compares_with_held_out_samples_of_the_forgotten_class():
    """Of a class that is forgotten entirely, held-out samples are wrong too: nothing is rewound."""
    method = SCRUB(lr=0.05, epochs=10, max_epochs=5, batch_size=8, retain_batch_size=16, rewind=True)
    found = run_method(trained(), split().with_validation(), method, Running(factory=TinyNet))
    assert found.scores.ua == 1.0
    assert "that on held-out data with the same labels 100.0 %" in found.note
    assert found.provenance["looked_at_unseen"]


def test_rewinding_with_recomputed_statistics():
    method = SCRUB(epochs=2, batch_size=20, rewind=True, batchnorm="recalibrate", lr=0.05)
    once, again = (run_method(trained(), split(), method, Running(factory=TinyNet)).model for _ in range(2))
    for a, b in zip(once.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_rewinding_needs_held_out_samples_with_the_labels():
    with pytest.raises(GradPivotError, match=r"split\.with_validation\(\), or set rewind=False"):
        Loop().run(SCRUB(rewind=True), trained(), Classification(), split())
    inputs, labels = blobs(seed=1).tensors
    others = TensorDataset(inputs[labels != 0], labels[labels != 0])
    data = ForgetSplit.by_class(blobs(), blobs(seed=1), 0, validation=others)
    with pytest.raises(GradPivotError, match="the validation data have none"):
        Loop().run(SCRUB(rewind=True), trained(), Classification(), data)


@pytest.mark.parametrize("wrong", [{"alpha": -1}, {"max_epochs": -1}, {"max_epochs": 1.5}])
def test_settings_out_of_range(wrong):
    with pytest.raises(GradPivotError, match=f"{next(iter(wrong))} is"):
        SCRUB(**wrong)


def test_another_task_is_refused():
    with pytest.raises(GradPivotError, match="SCRUB only supports classification"):
        Loop().run(SCRUB(), trained(), object(), split())
