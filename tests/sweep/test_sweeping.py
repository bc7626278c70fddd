"""What a sweep does with what comes back, on an engine in this process; processes are test_local's business."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import gradpivot
from gradpivot.cli import console
from gradpivot.cli.console import duration, standing
from gradpivot.errors import GradPivotError
from gradpivot.results.record import Record
from gradpivot.sweep import sweeping
from gradpivot.sweep.engines.job import JobOutcome
from gradpivot.sweep.sweeping import State, Sweep


def test_the_same_numbers_as_a_plain_loop_whatever_the_order(lab, expected, tmp_path):
    state = lab.sweep(lab.Inline(slots=1))
    assert state.is_whole
    assert (state.total, state.done, state.before, state.failed) == (lab.CELLS, lab.CELLS, 0, 0)
    assert lab.by_name() == expected
    forwards = lab.scores()
    lab.store_folder = tmp_path / "backwards"
    lab.sweep(lab.Inline(backwards=True, slots=50))
    assert lab.scores() == forwards


def test_a_second_sweep_does_nothing(lab):
    lab.sweep()
    engine = lab.Inline()
    state = lab.sweep(engine)
    assert engine.seen == []
    assert (state.done, state.before) == (lab.CELLS, lab.CELLS)


def test_what_a_killed_sweep_left_is_removed(lab):
    """A kill between recording a run and removing its checkpoint left it for good."""
    lab.sweep()
    records = [path.stem for path in (lab.store_folder / "runs").rglob("*.json")]
    originals = [path.stem for path in (lab.store_folder / "originals").glob("*.safetensors")]
    checkpoints = lab.store_folder / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    for key in (records[0], originals[0], "unfinished"):
        (checkpoints / f"{key}.pt").touch()
    lab.sweep()
    assert [path.name for path in checkpoints.iterdir()] == ["unfinished.pt"]


def test_more_seeds_do_only_what_is_new(lab):
    lab.sweep()
    lab.path.write_text(lab.path.read_text().replace("seeds: 1", "seeds: 2"))
    engine = lab.Inline()
    state = lab.sweep(engine)
    assert (state.before, state.done) == (lab.CELLS, 2 * lab.CELLS)
    assert {job.seed for job in engine.seen} == {1}


@pytest.mark.slow
def test_runs_survive_tidying_of_our_source(lab, tmp_path, monkeypatch):
    """With a file moved and every docstring and comment edited nothing reruns; with another number all of it does."""
    package = tmp_path / "source" / "gradpivot"
    shutil.copytree(Path(gradpivot.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))

    def runs_after_a_sweep() -> int:
        process = lab.cli()
        _, told = process.communicate(timeout=lab.PATIENCE)
        assert process.returncode == 0, told
        return len(lab.pids())

    assert runs_after_a_sweep() == lab.COPIES
    moved = (package / "tasks" / "objectives.py").rename(package / "tasks" / "losses.py")
    for path in package.rglob("*.py"):
        text = path.read_text().replace("gradpivot.tasks.objectives", "gradpivot.tasks.losses")
        path.write_text(text.replace('"""', '"""Tidied. ', 1) + "# Tidied.\n")
    door = package / "tasks" / "__init__.pyi"
    door.write_text(door.read_text().replace("from .objectives import", "from .losses import"))
    assert runs_after_a_sweep() == lab.COPIES
    moved.write_text(f"{moved.read_text()}EXTRA = 1 + 1\n")
    assert runs_after_a_sweep() == 2 * lab.COPIES


def test_damaged_files_are_named_and_done_again_with_the_same_numbers(lab, expected):
    lab.sweep()
    before = lab.scores()
    record = next(lab.store_folder.glob("runs/*/*.json"))
    original = next(lab.store_folder.glob("originals/*.safetensors"))
    weights = original.read_bytes()
    record.write_text(record.read_text()[:200])
    original.write_bytes(weights[:-8])
    engine = lab.Inline()
    state = lab.sweep(engine)
    assert sorted(state.damaged) == sorted([record.name, original.name])
    assert [job.key for job in engine.seen] == [original.stem, record.stem]
    assert original.read_bytes() == weights
    assert lab.scores() == before
    assert lab.by_name() == expected


def test_what_peoples_code_raises_is_one_line_and_the_rest_is_done(lab):
    trouble = lab.say("raise")
    store = lab.store()
    state = Sweep(lab.cells, store, lab.Inline()).run()
    assert (state.done, state.failed, state.is_whole) == (lab.CELLS - 3, 3, False)
    failures = store.failures()
    assert {reason for _, _, reason in failures} == {"RuntimeError: my loss is broken"}
    assert "CUP (lr=0.01, gamma=0.2), class 1, seed 0" in {what for _, what, _ in failures}
    store.close()
    trouble.unlink()
    engine = lab.Inline()
    assert lab.sweep(engine).is_whole
    assert len(engine.seen) == 3
    assert lab.store().failures() == []


def test_when_the_first_runs_all_fail_the_sweep_stops(lab, monkeypatch):
    class Broken(lab.Inline):
        def wait(self, seconds):
            return [
                JobOutcome(job=o.job, value=o.value, error=None if o.job.cell is None else "no such thing")
                for o in super().wait(seconds)
            ]

    monkeypatch.setattr(sweeping, "MAX_FIRST_FAILURES", 4)
    with pytest.raises(GradPivotError, match="the first 4 runs all failed; the last error is: no such thing"):
        lab.sweep(Broken(slots=2))
    assert lab.claims() == 0


def test_a_series_that_only_fails_is_given_up_and_the_others_go_on(lab, monkeypatch):
    monkeypatch.setattr(sweeping, "MAX_FIRST_FAILURES", 1)
    hopeless = "BS: {method: bs, lr: [0.01, 0.02], low: 9, high: 10}"
    lab.path.write_text(lab.path.read_text().replace("GA: {method: ga}", hopeless))
    store = lab.store()
    state = Sweep(lab.cells, store, lab.Inline(slots=1)).run()
    assert (state.done, state.failed) == (8, 4)
    reasons = [reason for *_, reason in store.failures()]
    assert sum(reason.startswith("skipped, the first 1 failed") for reason in reasons) == 3


def test_a_worker_that_is_wrong_stops_the_sweep(lab):
    class Foreign(lab.Inline):
        def wait(self, seconds):
            return [replace(one, value=None, error="other versions", fatal=True) for one in super().wait(seconds)]

    with pytest.raises(GradPivotError, match="a worker cannot run this sweep: other versions"):
        lab.sweep(Foreign())


def test_what_came_with_a_fatal_outcome_is_kept(lab):
    class Turning(lab.Inline):
        """One worker turns out to be wrong as the run of another comes in, which it names first."""

        def wait(self, seconds):
            done = [*super().wait(seconds), *super().wait(seconds)]
            if not all(isinstance(one.value, Record) for one in done):
                return done
            return [replace(done[0], value=None, error="other versions", fatal=True), *done[1:]]

    with pytest.raises(GradPivotError, match="a worker cannot run this sweep"):
        lab.sweep(Turning())
    assert len(lab.store().records()) == 1


def test_an_original_that_cannot_be_trained_stops_the_sweep(lab):
    class Broken(lab.Inline):
        def wait(self, seconds):
            return [replace(outcome, error="no data") for outcome in super().wait(seconds)]

    with pytest.raises(GradPivotError, match="cannot train the original model, seed 0: no data"):
        lab.sweep(Broken())


class Losing:
    """Mixed into an engine: the jobs that ``is_lost`` picks come back as lost."""

    blameless = False

    def wait(self, seconds):
        return [
            JobOutcome(job=o.job, lost="its worker died", blameless=self.blameless) if self.is_lost(o.job) else o
            for o in super().wait(seconds)
        ]


def test_what_is_lost_is_tried_three_times(lab):
    class Engine(Losing, lab.Inline):
        def is_lost(self, job):
            return job.cell is not None and job.cell.series == "GA" and job.cell.forget == "0"

    engine = Engine()
    store = lab.store()
    state = Sweep(lab.cells, store, engine).run()
    assert (state.done, state.failed) == (lab.CELLS - 1, 1)
    assert sum(engine.is_lost(job) for job in engine.seen) == 3
    assert "its worker died, 3 times" in store.failures()[0][2]


def test_what_is_lost_with_its_node_is_not_blamed(lab, expected):
    class Engine(Losing, lab.Inline):
        blameless = True

        def is_lost(self, job):
            return sum(job.key == other.key for other in self.seen) <= 4

    assert lab.sweep(Engine()).is_whole
    assert lab.by_name() == expected


def test_runs_finished_elsewhere_are_passed_over_and_counted(lab, tmp_path):
    """Everything else appears in the store between our first job and our second."""
    lab.sweep()
    lab.store().export(tmp_path / "all.jsonl")
    lab.store_folder = tmp_path / "fresh"

    class Engine(lab.Inline):
        def wait(self, seconds):
            if not self.seen:
                lab.store().import_runs(tmp_path / "all.jsonl")
            return super().wait(seconds)

    engine = Engine(slots=1)
    state = lab.sweep(engine)
    assert [job.cell for job in engine.seen] == [None]
    assert (state.done, state.before, state.failed) == (lab.CELLS, 0, 0)


def test_what_others_have_claimed_is_waited_for(lab, monkeypatch):
    """All is claimed by another sweep, which then dies: its claims lapse and we do the work."""
    other = lab.store()
    keys = list(Sweep(lab.cells, other, lab.Inline()).keys)
    other.claim(keys, len(keys))
    seen: list[State] = []

    def watch(state: State) -> None:
        seen.append(replace(state))
        if state.elsewhere == len(keys):
            other.release()

    store = lab.store()
    state = Sweep(lab.cells, store, lab.Inline()).run(watch)
    assert state.is_whole
    assert max(s.elsewhere for s in seen) == len(keys)
    assert store.claimed_elsewhere() == 0


def test_a_long_sweep_sends_heartbeats(lab, monkeypatch):
    monkeypatch.setattr(sweeping, "LEASE_SECONDS", 0.0)
    store = lab.store()
    beats = []
    monkeypatch.setattr(store, "heartbeat", lambda: beats.append(1))
    lab.sweep(store=store)
    assert len(beats) >= lab.CELLS


def test_diverged_runs_are_counted_and_scored_zero(lab):
    lab.path.write_text(lab.path.read_text().replace("GA: {method: ga}", "GA: {method: ga, lr: 1e30, max_norm: null}"))
    state = lab.sweep()
    assert state.is_whole
    assert state.diverged == 2
    bad = [r for r in lab.store().records() if r.point.diverged]
    assert {r.series for r in bad} == {"GA"}
    assert {r.point.scores.vector() for r in bad} == {(0, 0, 0, 0)}
    assert lab.sweep().diverged == 2


def test_a_checkpoint_is_removed_with_its_run_and_a_damaged_one_does_no_harm(lab, expected):
    store = lab.store()
    sweep = Sweep(lab.cells, store, lab.Inline())
    for key in sweep.keys:
        path = store.checkpoint_path(key)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half a checkpoint")
    assert sweep.run().is_whole
    assert not list(store.checkpoint_path("x").parent.iterdir())
    store.close()
    assert lab.by_name() == expected


# Progress


def test_progress_adds_up(lab):
    seen: list[State] = []
    store = lab.store()
    Sweep(lab.cells, store, lab.Inline()).run(lambda state: seen.append(replace(state)))
    last = seen[-1]
    assert (last.done, last.running, last.seconds_left) == (lab.CELLS, 0, 0)
    assert [s.done for s in seen] == sorted(s.done for s in seen)
    for state in seen:
        assert state.done + state.running + state.failed <= state.total + 1
        assert state.busy is None or 0 <= state.busy <= 1
        assert state.useful is None or 0 < state.useful <= 1
        assert state.seconds_left is None or 0 <= state.seconds_left < 600
    assert last.busy is not None
    assert last.useful is not None


def test_standing_says_how_far_it_is():
    state = State(total=40, done=12, running=2, elsewhere=3, failed=1, diverged=4, seconds_left=600.0)
    assert standing(state) == "12/40 done, 2 running, 3 elsewhere, 1 failed, 4 diverged, 10 min left"
    assert standing(State(total=9, running=2, shares=[0.341, 0.12])).startswith("0/9 done, 2 running (34 %, 12 %), 0")
    assert standing(State(total=4)) == "0/4 done, 0 running, 0 failed, 0 diverged"
    assert [duration(s) for s in (0.4, 89, 90, 7100, 7300, 90_000)] == [
        "0 s", "89 s", "2 min", "118 min", "2 h 2 min", "25 h 0 min",
    ]  # fmt: skip


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.watched_sweep("mine", as_json=False) as watch:
        for now in (0.0, 5.0, 9.0, 11.0, 15.0, 20.0, 22.0):  # noqa: B007 - the clock reads it
            watch(State(total=4, done=1))
    assert capsys.readouterr().err == "mine  1/4 done, 0 running, 0 failed, 0 diverged\n" * 2
