from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from torch.utils.data import TensorDataset

from gradpivot import GA, ForgetSplit, trace, unlearn
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
