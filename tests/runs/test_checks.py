"""What is refused is refused before the first step."""

from __future__ import annotations

import re

import pytest
from torch.utils.data import TensorDataset

from gradpivot import GA, ForgetSplit, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.methods.method import Method
from gradpivot.testing.problems import blobs, trained


def steps_made(split: ForgetSplit, method: Method | None = None, **options: object) -> tuple[str, list[int]]:
    """What a run is refused with, and what it had done by then."""
    done: list[int] = []
    with pytest.raises(GradPivotError) as refused:
        unlearn(
            trained(),
            split,
            method or GA(epochs=1),
            progress=lambda step, total: done.append(step),
            **options,
        )
    return str(refused.value), done


@pytest.mark.parametrize("count", [0, -5])
def test_what_could_not_be_scored_is_refused_before_the_first_step(count):
    told, done = steps_made(ForgetSplit.by_class(blobs(), blobs(seed=1), 0), retain_scored=count)
    assert told == f"retain_scored is {count}; give at least 1, or None for all retain samples"
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
    assert "one sample to keep has no variance" in told
    assert not done


def test_and_a_task_that_only_looks_like_one():
    class Alike:
        retain_loss = forget_loss = target_of = predict = None

    told, done = steps_made(ForgetSplit.by_class(blobs(), blobs(seed=1), 0), task=Alike())
    assert "the task is a Alike; let it inherit from gradpivot.Classification" in told
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
    assert message.startswith("the split is a TensorDataset; say what to forget")
