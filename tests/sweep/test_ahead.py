"""Worlds trained together: the sweep finds originals, resumes references, and scores the same models."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
import torch

from gradpivot.auditing.worlds import run_worlds, world_cells
from gradpivot.methods.ga import GA
from gradpivot.sweep import ahead
from gradpivot.sweep.ahead import train_ahead
from gradpivot.sweep.engines.job import JobOutcome
from gradpivot.sweep.engines.local import LocalEngine
from gradpivot.sweep.store.store import Store
from gradpivot.sweep.work import setting_of
from lab import InlineEngine

MODULE = """
from gradpivot.experiments.problem import Problem
from gradpivot.methods.retrain import Retrain
from gradpivot.models.mlp import MLP
from gradpivot.testing.problems import blobs

def problem():
    return Problem(name="tiny", load=lambda: (blobs(20), blobs(20, seed=1)), model=lambda: MLP((4, 16, 3)),
                   training=Retrain(epochs=2, lr=0.1, batch_size=20))

def twin():
    return problem()
"""
CLASS = {"kind": "class", "classes": [0]}
INLINE = "lab:start_inline"


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    name = f"stacked_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_worlds_trained_together_are_those_trained_one_by_one(module, tmp_path, capsys):
    method = {"GA": GA(epochs=1, batch_size=10, lr=0.01)}
    # Two names of one problem: this process keeps originals by their key.
    one_by_one = run_worlds(f"{module}:twin", CLASS, method, count=3, store=tmp_path / "a", engine=INLINE)["GA"]
    options = {"count": 3, "store": tmp_path / "b", "engine": INLINE, "together": True}
    together = run_worlds(f"{module}:problem", CLASS, method, **options)["GA"]
    assert np.array_equal(one_by_one.inside, together.inside)
    for kind in ("shadow", "retrained", "unlearned"):
        assert np.allclose(getattr(one_by_one, kind), getattr(together, kind), rtol=1e-3, atol=1e-3)
    assert together.seconds.keys() == one_by_one.seconds.keys()
    assert not list((tmp_path / "b").rglob("*.pt"))
    assert "starting over" not in capsys.readouterr().err
    again = run_worlds(f"{module}:problem", CLASS, method, **options)["GA"]
    assert np.array_equal(again.shadow, together.shadow)


def test_a_reference_resumes_after_its_last_step(module, tmp_path, monkeypatch):
    monkeypatch.setattr("gradpivot.loop.stepping.Stepping.gradients", lambda *_, **__: pytest.fail("it was trained"))
    options = {"count": 2, "store": tmp_path / "store", "engine": INLINE, "together": True}
    found = run_worlds(f"{module}:problem", CLASS, {}, **options)[""]
    assert found.retrained.shape == (2, 20)
    assert found.seconds["retrained"] > 0


def test_what_the_store_has_is_not_trained_again(module, tmp_path, monkeypatch):
    setting = setting_of(f"{module}:problem", 1, "cpu")
    cells = world_cells(setting, CLASS, 2, {})
    store = Store(tmp_path / "store", create=True)
    assert train_ahead(cells, store, InlineEngine()) is None
    assert all(store.has_original(cell.original_key) for cell in cells)
    monkeypatch.setattr("gradpivot.sweep.ahead.train_together", lambda problem, lessons: pytest.fail("trained twice"))
    assert train_ahead(cells, store, InlineEngine()) is None
    store.close()


def test_a_model_that_cannot_be_stacked_is_trained_one_by_one_with_a_warning(lab, tmp_path):
    options = {"count": 1, "store": tmp_path / "audit", "engine": INLINE, "together": True}
    with pytest.warns(UserWarning, match="one by one: its task"):
        assert len(run_worlds(f"{lab.module}:problem", CLASS, {}, **options)[""].shadow) == 1


def test_models_are_kept_block_by_block(module, tmp_path, monkeypatch):
    """A kill loses one block, not all."""
    monkeypatch.setattr(ahead, "_TOGETHER", 2)
    done, train, put = [], ahead.train_together, Store.put_original
    monkeypatch.setattr(ahead, "train_together", lambda *words: done.append("train") or train(*words))
    monkeypatch.setattr(Store, "put_original", lambda *words: done.append("put") or put(*words))
    store = Store(tmp_path / "store", create=True)
    assert (
        train_ahead(world_cells(setting_of(f"{module}:problem", 1, "cpu"), CLASS, 4, {}), store, InlineEngine()) is None
    )
    assert done[:6] == ["train", "put", "put", "train", "put", "put"]
    store.close()


def test_the_number_of_workers_changes_no_bit(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Where workers look for the module.
    cells = world_cells(setting_of(f"{module}:problem", 1, "cpu"), CLASS, 4, {})
    found = []
    for number, engine in enumerate([InlineEngine(), LocalEngine(2, 1, tmp_path / "log")]):
        store = Store(tmp_path / str(number), create=True)
        try:
            assert train_ahead(cells, store, engine) is None
            originals = [store.original_path(key).read_bytes() for key in sorted({c.original_key for c in cells})]
            checkpoints = [torch.load(store.checkpoint_path(c.key)) for c in cells if c.role == "retrained"]
        finally:
            engine.close()
            store.close()
        weights = [one["state"]["descent"]["model"] for one in checkpoints]
        found.append((originals, [w.numpy().tobytes() for model in weights for w in model.values()]))
    assert len(found[0][1]) == 4 * 4
    assert found[0] == found[1]


def test_a_block_whose_worker_died_is_left_to_the_sweep(module, tmp_path):
    class Dying(InlineEngine):
        def wait(self, seconds: float) -> list[JobOutcome]:
            return [JobOutcome(job=self._queue.popleft(), lost="killed")]

    cells = world_cells(setting_of(f"{module}:problem", 1, "cpu"), CLASS, 2, {})
    store = Store(tmp_path / "store", create=True)
    assert train_ahead(cells, store, Dying()) == "a program of 2 models failed (killed)"
    assert not any(store.has_original(cell.original_key) for cell in cells)
    store.close()


def test_a_block_runs_with_the_threads_of_its_setting(module, monkeypatch):
    """An engine may start its workers with others, and the last digits depend on them."""
    cells = world_cells(setting_of(f"{module}:problem", 2, "cpu"), CLASS, 1, {})
    seen = []
    monkeypatch.setattr(ahead, "train_together", lambda *_: seen.append(torch.get_num_threads()) or [None])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        ahead.train_block([(cells[0], True)])
    finally:
        torch.set_num_threads(before)
    assert seen == [2]


def test_large_data_make_small_blocks(module, tmp_path, monkeypatch):
    monkeypatch.setattr("gradpivot.sweep.ahead._MAX_MEMORY", 1)
    sizes = []
    train = ahead.train_together
    monkeypatch.setattr(ahead, "train_together", lambda p, lessons: sizes.append(len(lessons)) or train(p, lessons))
    store = Store(tmp_path / "store", create=True)
    assert (
        train_ahead(world_cells(setting_of(f"{module}:problem", 1, "cpu"), CLASS, 2, {}), store, InlineEngine()) is None
    )
    assert set(sizes) == {1}
    store.close()
