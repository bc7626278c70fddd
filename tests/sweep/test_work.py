from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load

from gradpivot.evaluate.classifiers import evaluation
from gradpivot.runs.run import Running
from gradpivot.sweep import work
from gradpivot.sweep.cell import Cell, cells_of
from gradpivot.sweep.engines.job import Job, perform
from gradpivot.testing.problems import TinyNet


@pytest.fixture
def cells(lab):
    return {(c.series, c.forget): c for c in cells_of(lab.recipe, lab.setting)}


def job_of(lab, cell, setting=None):
    return Job(
        key=cell.key, setting=setting or cell.setting, seed=0, cell=cell, original=lab.folder / "none",
        checkpoint=lab.folder / "checkpoint.pt", store=(lab.folder, "none"),
    )  # fmt: skip


def test_a_record_tells_the_whole_story(lab, cells):
    cell = cells["CUP", "1"]
    weights = work.original_weights(lab.setting, 0)
    record = work.run_cell(cell, lambda: weights)
    assert (record.key, record.role, record.series, record.method) == (cell.key, "run", "CUP", "cup")
    assert (record.problem, record.kind, record.forget, record.protocol) == ("tiny", "class", "1", "clean")
    assert dict(record.point.settings) == dict(cell.method)
    assert record.point.history == {}
    timing = record.provenance["timing"]
    assert 0 < timing["unlearning"] + timing["evaluation"] <= timing["total"]
    assert record.provenance["telemetry"]["steps"] == 2
    assert record.provenance["environment"]["threads"] == 1
    assert Cell.from_dict(record.provenance["cell"]).key == record.key
    assert record.provenance["setting_key"] == cell.setting.key


def test_the_weights_of_an_original_are_fetched_once(lab, cells):
    weights = work.original_weights(lab.setting, 0)
    assert work.original_weights(lab.setting, 0) == weights
    assert work.original_weights(lab.setting, 1) != weights
    assert all(torch.isfinite(t.double()).all() for t in load(weights).values())
    asked = []

    def fetch() -> bytes:
        asked.append(1)
        return weights

    for name in (("CUP", "0"), ("GA", "0"), ("Original", "1")):
        work.run_cell(cells[name], fetch)
    assert asked == [1]


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("versions", {"gradpivot": "0.0", "torch": "1"}, "install the same versions on all nodes"),
        ("data", "other", "data of the problem"),
        ("model", "other", "model of the problem"),
        ("training", {"lr": 1}, "training of the problem"),
    ],
)
def test_a_worker_that_would_give_other_numbers_refuses(lab, cells, part, value, message):
    cell = cells["CUP", "0"]
    answer = perform(job_of(lab, cell, replace(lab.setting, **{part: value})), lambda: b"")
    assert answer.value is None
    assert message in answer.error
    assert answer.fatal
    work.check_setting(lab.setting)


def test_the_models_structure_is_part_of_the_setting(lab):
    before = lab.setting
    path = lab.folder / f"{lab.module}.py"
    wider = "class Wide(Net):\n    def __init__(self):\n        super().__init__()\n"
    wider += "        self.layers[4] = __import__('torch').nn.Linear(16, 3, bias=False)\n"
    other = lab.folder / "other_structure.py"
    other.write_text(
        path.read_text().replace("def problem", f"{wider}\ndef problem").replace("model=Net", "model=Wide")
    )
    after = work.setting_of("other_structure:problem", 1, "cpu")
    assert after.model != before.model
    assert after.data == before.data


def test_long_errors_of_others_are_cut_to_a_line(lab, cells, monkeypatch, capsys):
    def broken(*_: object) -> None:
        raise RuntimeError("size mismatch\n" * 500)

    monkeypatch.setattr(work, "run_cell", broken)
    error = perform(job_of(lab, cells["CUP", "0"]), lambda: b"").error
    assert error.startswith("RuntimeError: size mismatch size")
    assert len(error) <= 400
    assert "\n" not in error
    assert "Traceback" in capsys.readouterr().err


def test_another_runs_checkpoint_is_thrown_away(lab, cells, capsys):
    weights = work.original_weights(lab.setting, 0)
    path = lab.folder / "c.pt"
    torch.save({"key": "another run", "seconds": 0.0, "state": {}}, path)
    record = work.run_cell(cells["CUP", "0"], lambda: weights, path)
    assert record.point.scores == work.run_cell(cells["CUP", "0"], lambda: weights).point.scores
    assert "belongs to another run" in capsys.readouterr().err


def test_telemetry_counts_steps_and_shares():
    history = {
        "step": [0, 1, 2, 3],
        "cosine": [-0.5, 0.5, None, -0.1],
        "delta_forget": [-1.0, -1.0, 1.0, -1.0],
        "delta_retain": [None] * 4,
    }
    told = work.telemetry(history)
    assert told == {"steps": 4, "conflict": pytest.approx(2 / 3), "raised_forget": 0.25}
    assert work.telemetry({}) == {"steps": 0}
    assert math.isfinite(told["conflict"])


GIVEN = """
import torch
from gradpivot.experiments.problem import Problem
from gradpivot.testing.problems import TinyNet, blobs

def given():
    net = TinyNet()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(WEIGHT)
    return net

def problem():
    return Problem(name="tiny", load=lambda: (blobs(20), blobs(20, seed=1)), model=TinyNet, original=given,
                   retain_scored=7)
"""


def test_a_problem_may_bring_its_original_and_have_ra_on_a_part(lab, monkeypatch):
    settings = []
    for module, weight in (("given_one", "0.1"), ("given_two", "0.2")):
        lab.say(f"{module}.py", GIVEN.replace("WEIGHT", weight))
        monkeypatch.syspath_prepend(lab.folder)
        settings.append(work.setting_of(f"{module}:problem", 1, "cpu"))
    one, two = settings
    assert one.original != two.original
    assert lab.setting.original is None
    assert replace(one, problem="p").key != replace(two, problem="p").key
    weights = work.original_weights(one, seed=5)
    given = TinyNet()
    given.load_state_dict(load(weights))
    assert all(bool((parameter == 0.1).all()) for parameter in given.parameters())
    cell = next(c for c in cells_of(lab.recipe, one) if c.series == "CUP")
    assert work.run_cell(cell, lambda: weights).point.scores.n_retain == 7


def test_a_recipe_without_a_reference_has_no_such_cell(lab):
    lab.path.write_text(lab.path.read_text() + "reference: none\n")
    roles = [c.role for c in cells_of(lab.recipe, lab.setting)]
    assert "retrained" not in roles
    assert roles.count("run") == 6


def test_progress_is_told_step_by_step(lab, cells):
    weights = work.original_weights(lab.setting, 0)
    seen = []
    answer = perform(job_of(lab, cells["CUP", "1"]), lambda: weights, lambda done, total: seen.append((done, total)))
    assert answer.error is None
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_an_original_is_scored_for_every_target_from_the_same_passes(lab, cells, monkeypatch):
    passed = []
    over = evaluation._Passes.over

    def count(self, dataset, indices):
        passed.append(len(indices))
        return over(self, dataset, indices)

    weights = work.original_weights(lab.setting, 0)
    monkeypatch.setattr(evaluation._Passes, "over", count)
    monkeypatch.setattr(work, "_ORIGINALS", {})
    originals = [cells["Original", forget] for forget in ("0", "1")]
    told = [work.run_cell(cell, lambda: weights).point.scores for cell in originals]
    assert len(passed) == 2
    monkeypatch.setattr(work, "_ORIGINALS", {})
    alone = work.run_cell(originals[1], lambda: weights).point.scores
    assert told[1] == alone
    assert told[0] != told[1]


def test_a_training_of_an_original_that_was_killed_continues(lab, monkeypatch):
    whole = work.original_weights(lab.setting, 0)
    path = lab.folder / "original.pt"

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setitem(Running.__init__.__kwdefaults__, "checkpoint_seconds", 0)
    with pytest.raises(KeyboardInterrupt):
        work.original_weights(lab.setting, 0, stop, path)
    seen = []
    resumed = work.original_weights(lab.setting, 0, lambda done, total: seen.append(done), path)
    assert seen[0] == 2
    assert resumed == whole


def test_an_original_that_is_given_is_kept_once_for_all_seeds(lab):
    given = replace(lab.setting, original="weights")
    assert given.original_key(0) == given.original_key(1)
    assert lab.setting.original_key(0) != lab.setting.original_key(1)
