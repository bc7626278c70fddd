from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gradpivot import BadTeacher, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.methods.parts.distillation import divergence
from gradpivot.runtime import derive, isolated
from gradpivot.tasks import Classification
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import TinyNet, blobs, trained


class TestBadTeacher(MethodContract):
    method = BadTeacher(lr=0.02, epochs=15)
    # The random network may happen to guess some samples right.
    least_ua = 0.5


class TestBadTeacherAsPrinted(MethodContract):
    method = BadTeacher.protocol("paper", lr=0.01, epochs=15, batch_size=8)
    least_ua = 0.5


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def random_teacher(seed: int = 0) -> nn.Module:
    """The random network of a run with this seed."""
    with isolated(derive(seed, "initialisation")):
        return TinyNet().eval()


def distances(model: nn.Module, teacher: nn.Module) -> tuple[float, float]:
    """Mean KL(p_teacher ‖ p_model) over D_f and over D_r."""
    inputs, labels = blobs().tensors
    parts = [(inputs[part], labels[part]) for part in (labels == 0, labels != 0)]
    with torch.no_grad():
        forget, retain = (float(divergence(Classification(), model, teacher, part)) for part in parts)
    return forget, retain


@pytest.mark.numeric
def test_the_student_learns_each_set_from_its_teacher():
    """On D_f the random network's outputs, on D_r the original's."""
    for seed in range(3):
        model = unlearn(trained(), split(), BadTeacher(lr=0.02, epochs=15), seed=seed, factory=TinyNet).model
        bad, good = distances(model, random_teacher(seed)), distances(model, trained())
        assert bad[0] < 0.5 * distances(trained(), random_teacher(seed))[0]
        assert bad[0] < good[0]
        assert good[1] < bad[1]


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_step_is_the_gradient_of_the_two_divergences(temperature):
    data = ForgetSplit.by_class(blobs(per_class=4), blobs(seed=1), 0)
    method = BadTeacher(
        temperature=temperature, lr=0.1, epochs=1, batch_size=4, retain_batch_size=8, momentum=0, max_norm=None
    )
    original = trained()
    original.layers[3].p = 0.0
    mine, expected = unlearn(original, data, method, factory=TinyNet).model, copy.deepcopy(original)
    inputs, labels = blobs(per_class=4).tensors
    task, batches = Classification(), [(inputs[part], labels[part]) for part in (labels == 0, labels != 0)]
    loss = divergence(task, expected, random_teacher(), batches[0], temperature)
    loss = loss + divergence(task, expected, original, batches[1], temperature)
    loss.backward()
    for after, before in zip(mine.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.1 * before.grad, rtol=1e-4, atol=1e-6)


def test_the_temperature_changes_the_losses():
    losses = [
        unlearn(trained(), split(), BadTeacher(temperature=t, epochs=1), factory=TinyNet).history["forget_loss"][0]
        for t in (1.0, 4.0)
    ]
    assert losses[0] > losses[1] > 0


def test_the_random_teacher_comes_from_the_seed():
    first, again, other = (
        unlearn(trained(), split(), BadTeacher(epochs=1, batch_size=40), seed=seed, factory=TinyNet).history
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first["forget_loss"] != other["forget_loss"]


def test_a_network_that_cannot_be_made_anew_is_named():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(self.scale * inputs)

    with pytest.raises(GradPivotError, match="scale cannot be re-initialised; pass factory="):
        unlearn(Scaled(), split(), BadTeacher(epochs=1))


def test_another_task_is_refused():
    with pytest.raises(GradPivotError, match="Bad Teacher only supports classification"):
        Loop().run(BadTeacher(), trained(), object(), split())


@pytest.mark.parametrize("temperature", [0, -1, float("inf")])
def test_the_temperature_is_positive(temperature):
    with pytest.raises(GradPivotError, match="temperature is"):
        BadTeacher(temperature=temperature)
