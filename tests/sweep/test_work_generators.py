"""Sweeps of generators: trained, unlearned and judged by the same machinery as classifiers."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import uuid
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("diffusers")

from gradpivot.cli.main import main
from gradpivot.data.readers.png import decode_rgb
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators import scorer
from gradpivot.evaluate.generators.scores import GenerationScores
from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.results.record import Record
from gradpivot.sweep import work
from gradpivot.sweep.cell import cells_of
from gradpivot.sweep.store.store import Store
from gradpivot.sweep.sweeping import Sweep
from lab import InlineEngine
from tiny_generator import MODULE

RECIPE = """
schema: gradpivot.recipe/1
problem: {module}:generator
forget: {{{forget}}}
seeds: 1
protocols:
  clean:
    settings: {{iterations: 2}}
    series:
      CUP: {{method: cup, gamma: [0.2, 0.8]}}
      SalUn: {{method: salun, lr: {rate}}}
"""


def swept(
    folder, monkeypatch, *, forget: str = "classes: 1", rate: str = "1e-3", learn: int = 12
) -> tuple[Store, InlineEngine, list[Record]]:
    monkeypatch.syspath_prepend(str(folder))
    module = f"tiny_{uuid.uuid4().hex[:8]}"
    (folder / f"{module}.py").write_text(MODULE.replace("LEARN", str(learn)))
    (folder / "recipe.yaml").write_text(RECIPE.format(module=module, forget=forget, rate=rate))
    recipe = load_recipe(folder / "recipe.yaml")
    setting, judge = (make(recipe.problem, 1, "cpu") for make in (work.setting_of, work.judge_setting))
    work.check_targets(recipe.problem, [target for some in recipe.forget for target in some.targets])
    store, engine = Store(folder / "store", create=True), InlineEngine()
    Sweep(cells_of(recipe.suited(work.own_settings(recipe.problem)), setting), store, engine, judge).run()
    return store, engine, store.records()


@pytest.mark.numeric
def test_a_sweep_of_generators_keeps_what_was_judged_and_drawn(tmp_path, monkeypatch):
    store, engine, records = swept(tmp_path, monkeypatch)
    assert [job.cell is None for job in engine.seen] == [True, True] + [False] * 5
    assert sorted(record.series for record in records) == ["CUP", "CUP", "Original", "Retrain", "SalUn"]
    for record in records:
        scores = record.point.scores
        assert isinstance(scores, GenerationScores)
        assert (scores.n, scores.asked, scores.forgotten) == (12, (0, 1, 2), (1,))
        assert scores.classifier_accuracy >= 0.99
        assert scores.frechet[0].n == 8
        assert scores.frechet[0].n_reference == 40
        assert record.pictures is not None
        assert (record.pictures.rows, record.pictures.columns) == ((1, 0, 2), 2)
        sheet = decode_rgb(base64.b64decode(record.pictures.png), 16, 24)
        assert sheet.std() > 0
    assert Record.from_dict(records[0].to_dict()) == records[0]
    assert store.check()[1] == []
    store.close()


@pytest.mark.slow
def test_real_images_are_looked_at_once_for_all_workers(tmp_path, monkeypatch):
    store, engine, records = swept(tmp_path, monkeypatch)
    (kept,) = (store.folder / "real").glob("*/real-*.safetensors")
    job = next(job for job in engine.seen if job.cell is not None and job.cell.role == "original")
    weights, judge = job.original.read_bytes(), job.judge.read_bytes()
    work._SCORERS.clear()  # as in another worker

    def refuse(*_: object) -> None:
        raise AssertionError("the real images were looked at again")

    monkeypatch.setattr(scorer, "statistics_of", refuse)
    again = work.run_cell(job.cell, lambda: weights, judge=lambda: judge, shared=store.folder / "real")
    assert again.point.scores == next(r for r in records if r.role == "original").point.scores
    kept.write_bytes(kept.read_bytes()[:-9])
    work._SCORERS.clear()
    with pytest.raises(AssertionError, match="looked at again"):
        work.run_cell(job.cell, lambda: weights, judge=lambda: judge, shared=store.folder / "real")
    work._SCORERS.clear()
    store.close()


@pytest.mark.slow
def test_an_export_may_leave_the_pictures_out(tmp_path, monkeypatch, capsys):
    store, _, records = swept(tmp_path, monkeypatch)
    store.close()
    whole, bare = tmp_path / "whole.jsonl", tmp_path / "bare.jsonl"
    assert main(["store", "export", str(store.folder), str(whole)]) == 0
    assert main(["store", "export", str(store.folder), str(bare), "--no-pictures"]) == 0
    assert '"png"' in whole.read_text()
    assert '"png"' not in bare.read_text()
    assert main(["store", "import", str(tmp_path / "other"), str(bare)]) == 0
    with closing(Store(tmp_path / "other")) as other:
        assert other.records() == [replace(record, pictures=None) for record in records]
    assert main(["compare", str(tmp_path / "other"), "--out", str(tmp_path / "page"), "--formats", "html"]) == 0
    assert "No pictures of this model are stored." in (tmp_path / "page" / "generators.html").read_text()


@pytest.mark.slow
def test_a_sweep_of_generators_is_compared_from_the_command_line(tmp_path, monkeypatch, capsys):
    store, _, _ = swept(tmp_path, monkeypatch)
    store.close()
    out = tmp_path / "out"
    assert main(["compare", str(tmp_path / "store"), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "CUP" in told
    assert "SalUn" in told
    assert {"generators.md", "generators.html", "figures"} <= {path.name for path in out.iterdir()}
    assert main(["compare", str(tmp_path / "store"), "--methods", "cup", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"].startswith("gradpivot.generators")


@pytest.mark.slow
def test_a_finished_sweep_of_generators_runs_nothing_again(tmp_path, monkeypatch):
    store, _, records = swept(tmp_path, monkeypatch)
    original = next(record for record in records if record.role == "original")
    weights = {path.stem: path.read_bytes() for path in (tmp_path / "store" / "originals").glob("*.safe*")}
    cell = work.Cell.from_dict(original.provenance["cell"])
    again = work.run_cell(cell, lambda: weights[cell.original_key], judge=lambda: weights[cell.setting.judge_key])
    assert again.point.scores == original.point.scores
    assert again.pictures == original.pictures
    recipe, engine = load_recipe(tmp_path / "recipe.yaml"), InlineEngine()
    recipe = recipe.suited(work.own_settings(recipe.problem))
    state = Sweep(cells_of(recipe, cell.setting), store, engine, work.judge_setting(recipe.problem, 1, "cpu")).run()
    assert (state.done, engine.seen) == (5, [])
    store.close()


def test_diffusers_version_is_part_of_what_numbers_depend_on(tmp_path, monkeypatch):
    """Its networks and schedules make the numbers of a diffusion model, and none of a classifier's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"tiny_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(MODULE.replace("LEARN", "1"))
    generator, seer = (work.setting_of(f"{module}:{name}", 1, "cpu") for name in ("generator", "seer"))
    assert generator.versions["diffusers"] == importlib.metadata.version("diffusers")
    assert "diffusers" not in seer.versions


@pytest.mark.slow
def test_a_generator_that_diverged_counts_with_zeros(tmp_path, monkeypatch):
    store, _, records = swept(tmp_path, monkeypatch, rate="1e30")
    lost = next(record for record in records if record.series == "SalUn")
    assert lost.point.diverged
    assert lost.point.scores.vector() == (0, 0)
    assert lost.pictures is None
    store.close()


def test_a_classifier_that_knows_too_little_may_not_judge(tmp_path, monkeypatch):
    store, _, records = swept(tmp_path, monkeypatch, learn=1)
    assert records == []
    reasons = {reason for _, _, reason in store.failures()}
    assert len(reasons) == 1
    assert "it needs at least 99 %" in reasons.pop()
    store.close()


def test_a_generator_is_judged_by_classes(tmp_path, monkeypatch):
    with pytest.raises(GradPivotError, match="of kind 'random'; a generator can only forget whole classes"):
        swept(tmp_path, monkeypatch, forget="fraction: 0.1")


@pytest.mark.slow
def test_all_models_are_drawn_from_with_the_same_noise(tmp_path, monkeypatch):
    """Two settings that change nothing give the very same pictures and scores."""
    store, _, records = swept(tmp_path, monkeypatch, rate="[1e-30, 2e-30]")
    still = [record for record in records if record.series in ("SalUn", "Original")]
    assert len(still) == 3
    assert len({record.pictures.png for record in still}) == 1
    assert np.ptp([record.point.scores.fidelity for record in still]) < 1e-9
    store.close()


def test_a_generator_that_nobody_judges_is_refused_before_the_sweep(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"tiny_{uuid.uuid4().hex[:8]}"
    unjudged = "\ndef unjudged():\n    from dataclasses import replace\n    return replace(generator(), judging=None)\n"
    (tmp_path / f"{module}.py").write_text(MODULE.replace("LEARN", "1") + unjudged)
    with pytest.raises(GradPivotError, match="no scores to compare; set judging= of its Problem"):
        work.check_targets(f"{module}:unjudged", [{"kind": "class", "classes": [1]}])
