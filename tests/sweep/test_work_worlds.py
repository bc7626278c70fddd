"""Cells of an audit's worlds: shadows, margins, jobs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load

from gradpivot.data.split import ForgetSplit
from gradpivot.data.worlds import world_split
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problem import find_problem
from gradpivot.methods.cup import CUP
from gradpivot.methods.ga import GA
from gradpivot.results.record import Record
from gradpivot.runs.original import train_original
from gradpivot.sweep import work
from gradpivot.sweep.cell import Cell
from gradpivot.sweep.engines.job import Job, perform
from gradpivot.sweep.margins import scaled_margins
from gradpivot.sweep.sweeping import Sweep

TARGETS = {
    "class": {"kind": "class", "classes": [1]},
    "random": {"kind": "random", "fraction": 0.3, "seed": 4},
    "index": {"kind": "index", "indices": [0, 3, 7, 30, 31]},
    "second": {"kind": "index", "indices": [0, 3, 7, 30, 31], "already_forgotten": [1, 2, 4]},
}
METHOD = CUP(gamma=0.5, epochs=1, batch_size=10, lr=0.01)


def world_cell(setting, target, world=2, role="run", **method):
    return Cell(
        setting=setting, target={**target, "world": world, "worlds_seed": 0}, seed=world, role=role,
        series="CUP", protocol="audit" if role == "run" else "",
        method={"run": replace(METHOD, **method).to_dict(), "retrained": setting.training, "original": {}}[role],
    )  # fmt: skip


def job_of(lab, key, setting, seed=2, **what):
    return Job(
        key=key, setting=setting, seed=seed, original=lab.folder / "none", checkpoint=lab.folder / "checkpoint.pt",
        store=(lab.folder, "none"), **what,
    )  # fmt: skip


def problem_of(lab):
    return find_problem(f"{lab.module}:problem")


@pytest.mark.parametrize("kind", TARGETS)
def test_a_job_trains_the_shadow_on_its_world(lab, kind):
    cell = world_cell(lab.setting, TARGETS[kind])
    answer = perform(job_of(lab, cell.original_key, lab.setting, cell=None, target=cell.target), lambda: b"")
    assert answer.error is None
    problem = problem_of(lab)
    makers = {
        "class": lambda *data: ForgetSplit.by_class(*data, 1),
        "random": lambda *data: ForgetSplit.random(*data, 0.3, seed=4).with_validation(),
        "index": lambda *data: ForgetSplit.by_index(*data, TARGETS["index"]["indices"]).with_validation(),
        "second": lambda *data: ForgetSplit.by_index(
            *data, TARGETS["index"]["indices"], already_forgotten=[1, 2, 4]
        ).with_validation(),
    }
    base = makers[kind](*problem.load())
    reduced, _ = world_split(base, 2)
    expected = train_original(problem, reduced, 2).state_dict()
    found = load(answer.value)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert answer.value != work.original_weights(lab.setting, 2)
    record = work.run_cell(cell, lambda: answer.value)
    assert record.kind == reduced.kind
    assert record.provenance["split"]["split"] == reduced.hash
    assert record.provenance["split"]["validation"] == reduced.validation_source


@pytest.mark.parametrize("role", ["original", "retrained", "run"])
def test_records_of_a_world_carry_the_margins_of_all_targets(lab, role):
    cell = world_cell(lab.setting, TARGETS["class"], role=role)
    weights = work.original_weights(lab.setting, 2, target=cell.target)
    record = work.run_cell(cell, lambda: weights)
    base = work.base_split(lab.setting.problem, cell.target)
    assert len(record.margins) == len(base.forget_indices) == 20
    assert np.isfinite(record.margins).all()
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    if role == "original":
        problem = problem_of(lab)
        model = problem.model()
        model.load_state_dict(load(weights))
        assert record.margins == scaled_margins(model, problem.task, base.train, base.forget_indices)


def test_a_reference_does_not_depend_on_who_was_inside(lab):
    """Trained on the retain set alone, so its margins do not depend on which targets were drawn."""
    records = []
    for seed in (0, 1):
        cell = world_cell(lab.setting, TARGETS["class"], role="retrained")
        cell = replace(cell, target={**cell.target, "worlds_seed": seed})
        weights = work.original_weights(lab.setting, 2, target=cell.target)
        records.append(work.run_cell(cell, lambda weights=weights: weights))
    assert records[0].key != records[1].key
    assert records[0].margins == records[1].margins


def test_a_diverged_run_has_no_margins(lab):
    cell = replace(
        world_cell(lab.setting, TARGETS["class"]), method=GA(lr=1e30, max_norm=None, epochs=1, batch_size=10).to_dict()
    )
    weights = work.original_weights(lab.setting, 2, target=cell.target)
    record = work.run_cell(cell, lambda: weights)
    assert record.point.diverged
    assert record.margins is None
    assert "margins" not in record.to_dict()


def test_records_outside_worlds_have_no_margins(lab):
    weights = work.original_weights(lab.setting, 0)
    record = work.run_cell(lab.cells[0], lambda: weights)
    assert record.margins is None
    values = record.to_dict()
    assert "margins" not in values
    assert Record.from_dict(values) == record


GIVEN = """
from gradpivot.experiments.problem import Problem
from gradpivot.methods.retrain import Retrain
from gradpivot.testing.problems import TinyNet, blobs, trained

def problem():
    return Problem(name="tiny", load=lambda: (blobs(20), blobs(20, seed=1)), model=TinyNet, original=trained,
                   training=Retrain(epochs=2, lr=0.1, batch_size=20))
"""


def test_a_pretrained_original_is_no_shadow(lab):
    lab.say("pretrained_worlds.py", GIVEN)
    setting = work.setting_of("pretrained_worlds:problem", 1, "cpu")
    assert setting.original is not None
    given = work.original_weights(setting, 0)
    shadows = [
        work.original_weights(setting, world, target={**TARGETS["class"], "world": world, "worlds_seed": 0})
        for world in (0, 1)
    ]
    assert len({given, *shadows}) == 3
    keys = {world_cell(setting, TARGETS["class"], world).original_key for world in (0, 1)}
    assert len({*keys, setting.original_key(0)}) == 3


def test_a_world_of_a_random_subset_names_the_subsets_seed(lab):
    with pytest.raises(GradPivotError, match="without a seed"):
        work.base_split(lab.setting.problem, {"kind": "random", "fraction": 0.1, "world": 0})
    work.check_targets(lab.setting.problem, [{**target, "world": 0} for target in TARGETS.values()])


def test_a_sweep_trains_each_shadow_just_before_the_runs_of_its_world(lab, store):
    cells = [
        world_cell(lab.setting, TARGETS["class"], world, role, **method)
        for world in range(2)
        for role, method in (("original", {}), ("retrained", {}), ("run", {}), ("run", {"gamma": 0.2}))
    ]
    engine = lab.Inline(slots=1)
    state = Sweep(cells, store, engine).run()
    assert state.is_whole
    assert [job.cell is None for job in engine.seen] == 2 * [True, False, False, False, False]
    shadow = engine.seen[0]
    assert shadow.title == "original model of world 0, seed 0"
    assert store.original_seconds(shadow.key) > 0
    assert store.original_seconds("unknown") is None
    assert engine.seen[3].title == "CUP (lr=0.01, gamma=0.5), class 1 (world 0), seed 0"
    margins = {cell.key: store.get(cell.key).margins for cell in cells}
    assert {record.key: record.margins for record in store.records()} == margins
