"""Two commands on one folder, kills, and commands repeated: nothing is lost or mixed. Real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gradpivot.cli import main
from gradpivot.runtime import exclusive

MODULE = '''
import time
from pathlib import Path
from gradpivot.methods.retrain import Retrain
from gradpivot.experiments.problem import Problem
from gradpivot.testing.problems import TinyNet, blobs

class Slow(TinyNet):
    """Waits in every batch of training while the file ``slow`` exists."""
    def forward(self, features):
        if self.training and (Path(__file__).parent / "slow").exists():
            time.sleep(0.02)
        return super().forward(features)

def problem():
    return Problem(name="slow", load=lambda: (blobs(40), blobs(20, seed=1)), model=Slow,
                   training=Retrain.from_dict({**Retrain.short, "epochs": 8, "batch_size": 8, "lr": 0.05}))
'''
WORDS = ["--problem", "slow_problem:problem", "--classes", "0"]
RUN = ["unlearn", "cup", *WORDS, "--batch-size", "4", "--epochs", "2"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / "slow_problem.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "gradpivot", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip


def finish(*words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def kill_once_there_is(folder: Path, pattern: str, *words: str) -> None:
    """kill -9 as soon as the command has written a file."""
    process = start(*words)
    while process.poll() is None and not list(folder.glob(pattern)):
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    process.kill()
    process.communicate()


def same_weights(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_of_two_runs_in_one_folder_the_second_is_refused(here):
    """Both exited with 0, and one result was gone."""
    (here / "slow").touch()
    first = start(*RUN, "--gamma", "0.5", "--out", "run")
    while not (here / "run" / ".holder.json").exists() and first.poll() is None:
        time.sleep(0.01)
    status, _, error = finish(*RUN, "--gamma", "1", "--out", "run")
    assert status == 1
    assert error.startswith(f"gradpivot: run is in use by process {first.pid} on ")
    assert error.count("\n") == 1
    (here / "slow").unlink()
    _, told = first.communicate(timeout=120)
    assert first.returncode in (0, 4), told
    assert json.loads((here / "run" / "metrics.json").read_text())["provenance"]["method"]["gamma"] == 0.5


@pytest.mark.slow
def test_training_the_original_resumes_after_a_kill_and_is_not_repeated(here):
    (here / "slow").touch()
    run = here / "run"
    kill_once_there_is(run, "original-*.pt", *RUN, "--out", "run")
    (checkpoint,) = run.glob("original-*.pt")
    steps = [torch.load(checkpoint, weights_only=True)["state"]["step"]]
    # Once more, until it has been written again: it went on instead of starting over.
    checkpoint.rename(here / "kept")
    checkpoint.write_bytes((here / "kept").read_bytes())
    before = checkpoint.stat().st_ino
    process = start(*RUN, "--out", "run")
    while process.poll() is None and checkpoint.exists() and checkpoint.stat().st_ino == before:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    steps.append(torch.load(checkpoint, weights_only=True)["state"]["step"])
    assert steps[1] > steps[0] > 0
    (here / "slow").unlink()
    status = finish(*RUN, "--out", "run")[0]
    assert finish(*RUN, "--out", "whole")[0] == status
    for name in ("original.safetensors", "model.safetensors"):
        assert same_weights(run / name, here / "whole" / name)
    assert {path.name for path in run.iterdir()} == {path.name for path in (here / "whole").iterdir()}
    assert not list(run.glob("original-*"))


def test_a_finished_run_that_is_repeated_is_finished(here, capsys):
    """Killed after its last file, it exited with 1: "already holds a finished run"."""
    status = main([*RUN, "--out", "run"])
    content = (here / "run" / "metrics.json").read_bytes()
    for name in ("checkpoint.pt", "checkpoint.1.done.pt", "original-0123456789abcdef.safetensors"):
        (here / "run" / name).touch()
    (here / "run" / ".new").mkdir()
    capsys.readouterr()
    assert main([*RUN, "--out", "run"]) == status
    assert not (here / "run" / ".new").exists()
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith("run already holds this run")
    assert told.out.count("\n") == 1
    assert not [path for path in (here / "run").iterdir() if path.suffix == ".pt" or "-" in path.name]
    assert main([*RUN, "--out", "run", "--json"]) == status
    assert capsys.readouterr().out.encode() == content
    # Its own original is another one than the one it would train only by name.
    weights = str(here / "run" / "original.safetensors")
    for other in (["--gamma", "0.3"], ["--seed", "1"], ["--weights", weights], ["--threads", "2"]):
        assert main([*RUN, *other, "--out", "run"]) == 1
        assert "already holds a finished run with other settings" in capsys.readouterr().err
    assert (here / "run" / "metrics.json").read_bytes() == content


def test_a_finished_training_that_is_repeated_is_finished(here, capsys):
    train = ["train", "--problem", "slow_problem:problem", "--out", "trained"]
    assert main(train) == 0
    content = (here / "trained" / "metrics.json").read_bytes()
    (here / "trained" / "checkpoint.pt").touch()
    capsys.readouterr()
    assert main(train) == 0
    assert capsys.readouterr().out.startswith("trained already holds this run")
    assert not (here / "trained" / "checkpoint.pt").exists()
    assert (here / "trained" / "metrics.json").read_bytes() == content
    assert main([*train, "--epochs", "3"]) == 1
    assert "with other settings" in capsys.readouterr().err


def test_overwriting_never_leaves_the_files_of_two_runs_as_one(here, monkeypatch, capsys):
    """A kill while the second run was written left its weights beside the first one's scores."""
    main([*RUN, "--out", "run"])
    before = {path.name: path.read_bytes() for path in (here / "run").iterdir() if path.is_file()}
    real = Path.replace
    for name, kept in (("metrics.json", 0), ("model.safetensors", 1)):
        # Fails when the new file is written, then when it is moved.
        def stop(path: Path, target: Path, name: str = name, kept: int = kept) -> Path:
            if Path(target).name == name and (Path(target).parent.name == ".new") != kept:
                raise KeyboardInterrupt
            return real(path, target)

        monkeypatch.setattr(Path, "replace", stop)
        assert main([*RUN, "--gamma", "0.3", "--overwrite", "--out", "run"]) == 130
        monkeypatch.undo()
        now = {path.name: path.read_bytes() for path in (here / "run").iterdir() if path.is_file()}
        if kept:
            assert "metrics.json" not in now
        else:
            assert before.items() <= now.items()
        monkeypatch.chdir(here)


@pytest.mark.slow
def test_a_trace_resumes_within_a_run(here):
    """A run of a trace had no checkpoint: a long one that was killed often never ended."""
    (here / "slow").touch()
    trace = ["trace", "ga", *WORDS, "--values", "0.01", "--batch-size", "4", "--out", "trace"]
    kill_once_there_is(here / "trace", "[0-9a-f]*.checkpoint.pt", *trace)
    (here / "slow").unlink()
    assert finish(*trace)[0] == 0
    assert not [path.name for path in (here / "trace").iterdir() if path.suffix == ".pt"]


@pytest.mark.parametrize(
    "words",
    [
        RUN,
        ["train", "--problem", "slow_problem:problem"],
        ["trace", "cup", *WORDS],
        ["demo"],
        ["audit", "--weights", "new.pt", "--split", "split.json"],
        ["judge", "--weights", "new.pt", "--classes", "3"],
        ["reproduce", "toy"],
        ["reproduce", "digits"],
        ["reproduce", "vae"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_command_leaves_a_folder_in_use_alone(here, words, capsys):
    with exclusive(here / "run"):
        assert main([*words, "--out", "run"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"gradpivot: run is in use by process {os.getpid()} on ")
    assert error.count("\n") == 1
