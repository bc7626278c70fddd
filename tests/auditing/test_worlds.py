"""Shadow worlds: what is run, what is reused, and what the margins belong to."""

from __future__ import annotations

import numpy as np
import pytest

from gradpivot.auditing.worlds import run_worlds, target_of, world_cells
from gradpivot.data.split import ForgetSplit
from gradpivot.data.worlds import world_split
from gradpivot.errors import GradPivotError
from gradpivot.methods.cup import CUP
from gradpivot.methods.ga import GA
from gradpivot.sweep.work import base_split
from gradpivot.testing.problems import blobs

INLINE = "lab:start_inline"
TRAIN, TEST = blobs(20), blobs(20, seed=1)
CLASS = {"kind": "class", "classes": [0]}
METHODS = {"mild": CUP(gamma=0.2, epochs=1, batch_size=10), "strong": CUP(gamma=0.8, epochs=1, batch_size=10)}


def test_a_split_becomes_a_target_and_back(lab):
    problem = f"{lab.module}:problem"
    made = [
        (ForgetSplit.by_class(TRAIN, TEST, [0, 2]), {"kind": "class", "classes": [0, 2]}),
        (ForgetSplit.random(TRAIN, TEST, 0.1, seed=3), {"kind": "random", "fraction": 0.1, "seed": 3}),
        (ForgetSplit.by_index(TRAIN, TEST, [9, 2]), {"kind": "index", "indices": [2, 9]}),
    ]
    for split, target in made:
        assert target_of(split) == target
        assert np.array_equal(base_split(problem, target).forget_indices, split.forget_indices)
    earlier = {"already_forgotten": [1, 4, 5]}
    second = [
        (ForgetSplit.by_class(TRAIN, TEST, [0, 2], **earlier), {"kind": "class", "classes": [0, 2]}),
        (ForgetSplit.random(TRAIN, TEST, 0.1, seed=3, **earlier), {"kind": "random", "fraction": 0.1, "seed": 3}),
        (ForgetSplit.by_index(TRAIN, TEST, [9, 2], **earlier), {"kind": "index", "indices": [2, 9]}),
    ]
    for split, target in second:
        assert target_of(split) == {**target, **earlier}
        base = base_split(problem, target_of(split))
        assert np.array_equal(base.forget_indices, split.forget_indices)
        assert np.array_equal(base.retain_indices, split.retain_indices)
    chosen = ForgetSplit.by_predicate(TRAIN, TEST, lambda sample: float(sample[0][0]) > 2)
    assert target_of(chosen) == {"kind": "index", "indices": chosen.forget_indices.tolist()}


@pytest.mark.parametrize("fraction", [0.01, 0.05, 1 / 3, 0.5, 0.99])
def test_a_random_split_is_reproduced_from_fraction_and_seed(fraction):
    split = ForgetSplit.random(TRAIN, TEST, fraction, seed=1)
    target = target_of(split)
    assert target["kind"] == "random"
    again = ForgetSplit.random(TRAIN, TEST, target["fraction"], seed=target["seed"])
    assert np.array_equal(again.forget_indices, split.forget_indices)


def test_a_random_split_of_other_origin_is_given_by_its_indices():
    split = ForgetSplit.random(TRAIN, TEST, 0.1, seed=3)
    moved = ForgetSplit._with(TRAIN, TEST, split.forget_indices[:-1], kind="random", seed=3, target=split.target)
    assert target_of(moved) == {"kind": "index", "indices": moved.forget_indices.tolist()}


def test_the_cells_of_the_worlds(lab):
    setting = lab.setting
    cells = world_cells(setting, CLASS, 3, METHODS, seed=7)
    assert [cell.role for cell in cells] == 3 * ["original", "retrained", "run", "run"]
    assert [cell.seed for cell in cells] == [cell.world for cell in cells] == sorted([0, 1, 2] * 4)
    assert {cell.target["worlds_seed"] for cell in cells} == {7}
    assert len({cell.key for cell in cells}) == len(cells)
    assert len({cell.original_key for cell in cells}) == 3
    assert len(world_cells(setting, CLASS, 3, {})) == 6
    renamed = world_cells(setting, CLASS, 3, {"another name": METHODS["mild"]}, seed=7)
    assert {cell.key for cell in renamed} < {cell.key for cell in cells}


@pytest.mark.slow
def test_worlds_end_to_end_and_again(lab, tmp_path):
    problem, options = f"{lab.module}:problem", {"count": 4, "store": tmp_path / "audit", "engine": INLINE}
    states = []
    local = {**options, "engine": "local", "jobs": 2, "watch": lambda state: states.append(state.total)}
    first = run_worlds(problem, CLASS, {"mild": METHODS["mild"]}, **local)
    assert set(states) == {4 * 3}
    copies = len(lab.pids())
    assert copies == 4 * 3
    mild = first["mild"]
    split = ForgetSplit.by_class(TRAIN, TEST, 0)
    assert np.array_equal(mild.indices, split.forget_indices)
    for world in range(4):
        reduced, inside = world_split(split, world)
        assert np.array_equal(mild.inside[world], inside)
        assert len(reduced.forget_indices) == mild.inside[world].sum()
    for margins in (mild.shadow, mild.retrained, mild.unlearned):
        assert margins.shape == (4, 20)
        assert np.isfinite(margins).all()
    assert (mild.method, mild.diverged) == ("mild", 0)
    assert set(mild.seconds) == {"original", "retrained", "run"}
    assert all(seconds > 0 for seconds in mild.seconds.values())

    # A second method needs only its own runs; a third call with everything runs nothing.
    both = run_worlds(problem, CLASS, METHODS, **options)
    assert len(lab.pids()) == copies + 4
    again = run_worlds(problem, CLASS, METHODS, **options, watch=lambda _: pytest.fail("nothing is left to run"))
    assert len(lab.pids()) == copies + 4
    for found in (both, again):
        assert list(found) == ["mild", "strong"]
        assert np.array_equal(found["mild"].unlearned, mild.unlearned)
        assert np.array_equal(found["strong"].shadow, mild.shadow)
        assert not np.array_equal(found["strong"].unlearned, mild.unlearned)
    none = run_worlds(problem, CLASS, {}, **options)
    assert list(none) == [""]
    assert none[""].unlearned is None
    assert np.array_equal(none[""].retrained, mild.retrained)
    # More worlds keep those that are there.
    more = run_worlds(problem, CLASS, {}, **{**options, "count": 5})[""]
    assert np.array_equal(more.shadow[:4], mild.shadow)
    assert len(lab.pids()) == copies + 4 + 2


@pytest.mark.slow
def test_worlds_whose_run_diverged_are_dropped_and_counted(lab, tmp_path):
    methods = {"GA": GA(lr=1e30, max_norm=None, epochs=1, batch_size=10), "CUP": METHODS["mild"]}
    target = {"kind": "random", "fraction": 0.2, "seed": 0}
    found = run_worlds(f"{lab.module}:problem", target, methods, count=3, store=tmp_path / "audit", engine=INLINE)
    assert found["GA"].diverged == 3
    assert found["GA"].unlearned.shape == found["GA"].inside.shape == (0, 12)
    assert found["CUP"].diverged == 0
    assert found["CUP"].unlearned.shape == (3, 12)


@pytest.mark.slow
def test_a_run_that_fails_is_an_error(lab, tmp_path):
    lab.say("raise")
    with pytest.raises(
        GradPivotError, match=r"CUP.*class 1 \(world 0\), seed 0 failed: RuntimeError: my loss is broken"
    ):
        run_worlds(
            f"{lab.module}:problem", {"kind": "class", "classes": [1]}, {"CUP": METHODS["mild"]}, count=2,
            store=tmp_path / "audit", engine=INLINE,
        )  # fmt: skip


def test_there_is_at_least_one_world(lab, tmp_path):
    with pytest.raises(GradPivotError, match="the number of worlds is 0"):
        run_worlds(f"{lab.module}:problem", CLASS, {}, count=0, store=tmp_path / "audit")
