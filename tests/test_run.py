from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gradpivot import GA, trace
from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop
from gradpivot.parallel import Replicas
from gradpivot.run import Running, run_method
from gradpivot.tasks.classification import Classification
from gradpivot.testing import MethodContract, trained


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
