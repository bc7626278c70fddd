from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from torch.utils.data import TensorDataset

from gradpivot import CUP, GA, ForgetSplit, trace, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop
from gradpivot.methods.method import Method
from gradpivot.parallel import Replicas
from gradpivot.run import Running, run_method
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.vae import Autoencoding
from gradpivot.testing import MethodContract, blobs, trained


def test_what_is_left_open_is_the_usual():
    running = Running.of(task=None, replicas=None, seed=3)
    assert isinstance(running.task, Classification)
    assert running == Running(seed=3, task=running.task)
    own = Classification()
    given = Running.of(task=own, replicas=Replicas(1, 2))
    assert given.task is own
    assert given.replicas == Replicas(1, 2)


def test_its_loop_has_every_setting_that_they_share():
    other = Running(
        seed=3,
        factory=trained,
        workers=2,
        progress=lambda done, total: None,
        checkpoint=Path("a"),
        checkpoint_seconds=7.0,
        precision="bfloat16",
        compile=True,
        replicas=Replicas(1, 2),
    )
    loop = other.loop(other.checkpoint)
    shared = {f.name for f in fields(Loop) if f.init}
    assert shared <= {f.name for f in fields(Running)}
    for name in shared:
        assert getattr(loop, name) == getattr(other, name)
        assert getattr(loop, name) != getattr(Running(), name)


def test_what_is_no_setting_or_no_seed_is_refused():
    split = MethodContract().split()
    with pytest.raises(TypeError, match="sed"):
        trace(trained(), split, GA(epochs=1), values=[0.1], sed=1)
    with pytest.raises(GradPivotError, match="the seed is None"):
        run_method(trained(), split, GA(epochs=1), Running(seed=None))


def test_the_task_is_part_of_what_identifies_a_run():
    split, method = ForgetSplit.by_class(blobs(), blobs(seed=1), 0), GA()

    def key(task: object) -> str:
        return Running(task=task).key(split, method, trained())

    class Own(Classification):
        pass

    tasks = [
        Classification(),
        Own(),
        Autoencoding(),
        Autoencoding(ignorance=0.2),
        Autoencoding(forgets="model"),
    ]
    assert len({key(task) for task in tasks}) == len(tasks)
    assert key(Autoencoding(adapter=lambda batch: batch)) == key(Autoencoding(adapter=lambda batch: batch))


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


def test_samples_that_are_not_finite_are_named():
    inputs, labels = (part.clone() for part in blobs().tensors)
    inputs[[50, 61], 2] = math.nan
    data = TensorDataset(inputs, labels)
    result = unlearn(trained(), ForgetSplit.by_class(data, blobs(seed=1), 0), CUP(epochs=3, batch_size=40))
    assert result.diverged
    assert "the data hold NaN or infinity in the training samples" in result.diverged["reason"]
    assert re.search(r"samples (50|61)", result.diverged["reason"])


@pytest.mark.parametrize(
    ("ua", "steps", "kind", "told"),
    [
        (0.69, 50, "class", None),
        (
            0.2,
            50,
            "class",
            "asked for UA 71.0 %, reached 20.0 %: more would have cost too much of what is kept; a",
        ),
        (0.2, 5, "class", "5 steps are few"),
        (0.2, 50, "random", "A retrained model recognises most single records, too"),
    ],
)
def test_a_degree_that_was_missed_is_told(ua, steps, kind, told):
    result = unlearn(trained(), ForgetSplit.by_class(blobs(), blobs(seed=1), 0), CUP(epochs=1))
    made = replace(
        result,
        scores=replace(result.scores, ua=ua),
        history={"step": list(range(steps)), "asked": [0.3] * (steps - 1) + [0.71]},
        provenance={**result.provenance, "split": {"kind": kind}},
    )
    assert made.asked_ua == 0.71
    assert made.missed is None if told is None else told in made.missed
