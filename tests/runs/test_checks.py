"""What is refused is refused before the first step."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, Classification, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.methods.method import Method
from gradpivot.runs.checks import check_run
from gradpivot.tasks.task import Forgetting, Predictions
from gradpivot.testing.problems import blobs, trained


def steps_made(split: ForgetSplit, method: Method | None = None, **options: object) -> tuple[str, list[int]]:
    """What a run is refused with, and what it had done by then."""
    done: list[int] = []
    with pytest.raises(GradPivotError) as refused:
        unlearn(trained(), split, method or GA(epochs=1), progress=lambda step, total: done.append(step), **options)
    return str(refused.value), done


@pytest.mark.parametrize("count", [0, -5])
def test_what_could_not_be_scored_is_refused_before_the_first_step(count):
    told, done = steps_made(ForgetSplit.by_class(blobs(), blobs(seed=1), 0), retain_scored=count)
    assert told == f"retain_scored is {count}; it must be at least 1, or None for all retain samples"
    assert not done


def test_so_is_a_test_set_without_what_is_kept():
    inputs, labels = blobs(seed=1).tensors
    only = TensorDataset(inputs[labels == 0], labels[labels == 0])
    told, done = steps_made(ForgetSplit.by_class(blobs(), only, 0))
    assert "no sample of a retained class" in told
    assert not done


def test_and_statistics_of_one_sample():
    data = TensorDataset(*(part[[0, 40, 41, 80]] for part in blobs().tensors))
    split = ForgetSplit.by_index(data, blobs(seed=1), [0, 1, 2])
    told, done = steps_made(split, GA(epochs=1, batchnorm="recalibrate"))
    assert "a single sample has no variance; use batchnorm='frozen'" in told
    assert not done


def test_and_statistics_of_one_sample_after_a_restart():
    """A restart recomputes them whatever ``batchnorm`` says."""
    data = TensorDataset(*(part[[0, 40, 41, 80]] for part in blobs().tensors))
    alone = ForgetSplit.by_index(data, blobs(seed=1), [0, 1, 2], validation=blobs(seed=2))
    told, done = steps_made(alone, CUP(gamma=1.0, batchnorm="frozen"))
    assert "a single sample has no variance; use shrink=1" in told
    several = ForgetSplit.random(blobs(), blobs(seed=1), 0.1, validation=blobs(seed=2))
    told, more = steps_made(several, CUP(gamma=1.0, retain_batch_size=1))
    assert "retain_batch_size is 1; use at least 2" in told
    assert not done + more


def test_and_a_task_that_only_looks_like_one():
    class Alike:
        retain_loss = forget_loss = target_of = predict = None

    told, done = steps_made(ForgetSplit.by_class(blobs(), blobs(seed=1), 0), task=Alike())
    assert "the task is a Alike; inherit from gradpivot.Classification" in told
    assert not done


class Pictures:
    """A data set whose samples are not tensors yet."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[object, int]:
        image = type("Image", (), {"__module__": "PIL.Image"})()
        return image, index % 2


def test_what_the_model_cannot_be_run_on_is_one_line():
    inputs, labels = blobs().tensors
    for wrong, told in (
        (inputs.double(), r"a sample is \(float64 \(4,\), int64 \(\)\), and the weights are float32"),
        (inputs[:, :3], "a sample is .float32 .3"),
    ):
        data = TensorDataset(wrong, labels)
        message, done = steps_made(ForgetSplit.by_class(data, data, 0))
        assert "the model cannot be run on the data (RuntimeError: " in message
        assert re.search(told, message)
        assert not done
    message, _ = steps_made(ForgetSplit.by_class(Pictures(), Pictures(), 0, data_id="pictures"))
    assert "a sample holds a PIL image" in message
    message, _ = steps_made(blobs())
    assert message.startswith("the split is a TensorDataset; name what to forget")


class PerToken(nn.Module):
    """A causal language model: logits of every next token."""

    def __init__(self, shape: str = "n t v") -> None:
        super().__init__()
        self.embed, self.head, self.shape = nn.Embedding(9, 4), nn.Linear(4, 9), shape

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embed(tokens))
        return logits if self.shape == "n t v" else logits.flatten(0, 1)


class PerPixel(nn.Conv2d):
    """Segmentation."""

    def __init__(self) -> None:
        super().__init__(3, 2, 1)


TOKENS = torch.randint(0, 9, (12, 5), generator=torch.Generator().manual_seed(0))
IMAGES = torch.zeros(12, 3, 4, 4)


@pytest.mark.parametrize(
    ("model", "inputs", "targets", "shapes"),
    [
        (PerToken(), TOKENS, TOKENS, "logits (2, 5, 9) for labels (2, 5)"),
        (PerToken("flat"), TOKENS, TOKENS, "logits (10, 9) for labels (2, 5)"),
        (PerPixel(), IMAGES, IMAGES[:, 0].long(), "logits (2, 2, 4, 4) for labels (2, 4, 4)"),
    ],
)
@pytest.mark.parametrize("method", [CUP(), GA()])
def test_rows_that_are_not_samples_are_refused(model, inputs, targets, shapes, method):
    data = TensorDataset(inputs, targets)
    split = ForgetSplit.by_index(data, data, [0, 1], target=lambda sample: 0)
    with pytest.raises(GradPivotError, match="one degree per sample") as refused:
        check_run(model, split, method, Classification())
    assert shapes in str(refused.value)


class Own(Classification):
    """Doubts and degrees as somebody might give them."""

    def __init__(self, found: torch.Tensor | None = None, confidence: torch.Tensor | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "found", found)
        object.__setattr__(self, "told", confidence)

    def forgetting(self, model, batch, objective):
        return Forgetting(objective(*self.logits(model, batch)), self.found)

    uncertainty = forgetting

    def predict(self, model, batch):
        predictions = super().predict(model, batch)
        return predictions if self.told is None else Predictions(self.told, self.told > 0.5)


@pytest.mark.parametrize(
    ("kind", "found", "told"),
    [
        ("class", torch.ones(10), r"the degree from Own.forgetting has the shape \(10,\) for 2 samples"),
        ("random", torch.ones(2, 5), r"the uncertainty from Own.forgetting has the shape \(2, 5\) for 2"),
        ("random", torch.tensor([0.5, 9.46]), r"is 9\.46; return a probability between 0 and 1"),
    ],
)
def test_degrees_that_are_not_of_samples_are_refused(kind, found, told):
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    if kind == "random":
        split = ForgetSplit.random(blobs(), blobs(seed=1), 0.1)
    message, done = steps_made(split, CUP(), task=Own(found))
    assert re.search(told, message)
    assert message.endswith("other methods: no gamma)")
    assert not done
    check_run(trained(), split, CUP(dial="angle"), Own(found))


def test_so_are_predictions():
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    for confidence, told in ((torch.ones(10), r"\(10,\) for 2 samples"), (torch.tensor([2.0, 0]), "is 2; return a")):
        message, done = steps_made(split, task=Own(confidence=confidence))
        assert re.search(told, message)
        assert not done
