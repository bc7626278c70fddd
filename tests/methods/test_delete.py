from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import GA, Classification, Delete, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.delete import masked_targets
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import blobs, trained


class TestDelete(MethodContract):
    method = Delete(lr=0.05, epochs=20)
    least_ra = 0.75  # it sees no retain data


class TestDeleteUnderAdam(MethodContract):
    method = Delete(lr=0.01, epochs=20, optimizer="adamw", weight_decay=0.01)
    least_ra = 0.75


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def test_targets_are_the_softmax_without_the_true_class():
    logits = torch.tensor([[4.0, 1.0, 2.0], [0.0, 9.0, -1.0]], dtype=torch.float64)
    targets = masked_targets(logits, torch.tensor([0, 1]))
    e = torch.exp(torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64))
    e /= e.sum(1, keepdim=True)
    expected = torch.stack([torch.tensor([0, e[0, 0], e[0, 1]]), torch.tensor([e[1, 0], 0, e[1, 1]])]).double()
    torch.testing.assert_close(targets, expected)


def test_the_first_loss_is_that_of_unlikelihood():
    """From the original p, KL(p without y ‖ p) = −log(1 − p_y): only then do the targets bring something new."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    inputs, labels = blobs().tensors
    result = unlearn(model, split(), Delete(epochs=1, batch_size=40))
    with torch.no_grad():
        p = model(inputs[labels == 0]).double().softmax(1)[:, 0]
    assert result.history["forget_loss"][0] == pytest.approx(float(-torch.log1p(-p).mean()), rel=1e-4)


@pytest.mark.numeric
def test_the_minimiser_keeps_the_ratios_of_the_other_classes():
    """A linear model with one forget sample reaches the target exactly: p_y → 0, log-ratios as before."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4).double()
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 4
    data = TensorDataset(x, y)
    one = ForgetSplit.by_index(data, data, [2])
    method = Delete(lr=0.1, epochs=3000, momentum=0, max_norm=None, batchnorm="frozen")
    after = unlearn(model, one, method).model
    with torch.no_grad():
        before, now = model(x[2]), after(x[2])
    others = [0, 1, 3]
    assert float(now.softmax(0)[2]) < 1e-2
    ratios = (before[others] - before[0]) - (now[others] - now[0])
    assert float(ratios.abs().max()) < 0.05


def test_a_resumed_run_keeps_the_originals_targets(tmp_path):
    class Stop(Exception):  # noqa: N818 - stands for a kill
        pass

    def kill(done: int, total: int) -> None:
        if done == total - 1:
            raise Stop

    task, method, path = Classification(), Delete(lr=0.05, epochs=5), tmp_path / "checkpoint.pt"
    whole = Loop().run(method, trained(), task, split(), key="x").model
    with pytest.raises(Stop):
        Loop(checkpoint=path, checkpoint_seconds=0, progress=kill).run(method, trained(), task, split(), key="x")
    resumed = Loop(checkpoint=path, checkpoint_seconds=0).run(method, trained(), task, split(), key="x").model
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_the_teacher_is_in_eval_mode_and_stays(monkeypatch):
    teachers = []

    def watched(model):
        teachers.append(copy.deepcopy(model))
        return teachers[-1]

    monkeypatch.setattr("gradpivot.methods.delete.copy", SimpleNamespace(deepcopy=watched))
    model = trained()
    Loop().run(Delete(lr=0.05, epochs=3, batchnorm="train", batch_size=20), model, Classification(), split())
    (teacher,) = teachers
    assert not any(module.training for module in teacher.modules())
    assert all(torch.equal(value, teacher.state_dict()[name]) for name, value in model.state_dict().items())


def test_no_retain_sample_is_read():
    inputs, labels = blobs().tensors
    poisoned = torch.where((labels == 0)[:, None], inputs, torch.nan)
    one, other = (
        Loop().run(
            Delete(), trained(), Classification(), ForgetSplit.by_class(TensorDataset(x, labels), blobs(seed=1), 0)
        )
        for x in (inputs, poisoned)
    )
    assert one.history == other.history


def test_two_classes_leave_the_other_one():
    targets = masked_targets(torch.tensor([[3.0, -3.0]]), torch.tensor([0]))
    assert targets.tolist() == [[0.0, 1.0]]


def test_another_task_is_refused():
    class Other:
        pass

    with pytest.raises(GradPivotError, match="DELETE only supports classification, but the task is a Other"):
        Loop().run(Delete(), trained(), Other(), split())


def test_its_search_space_is_that_of_ga():
    assert [m.lr for m in Delete.space()] == [m.lr for m in GA.space()]
