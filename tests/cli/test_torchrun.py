"""The command line under a real torchrun: what is printed, who writes, what is left when a process dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from gradpivot.cli import commands, main, torchrun, unlearning
from gradpivot.cli.parser import parse
from gradpivot.errors import GradPivotError
from gradpivot.runtime.parallel import Replicas

PATIENCE = 120
"""Seconds: machines are busy."""

MODULE = """
import os, time
from pathlib import Path
import torch
from torch import nn
import gradpivot.runs.run
from gradpivot.errors import GradPivotError
from gradpivot.experiments.problem import Problem
from gradpivot.tasks.classification import Classification
from gradpivot.testing.problems import blobs

HERE = Path(__file__).parent
RANK = os.environ.get("RANK", "0")
(HERE / f"pid-{RANK}").write_text(str(os.getpid()))
# A checkpoint after every step rather than every ten seconds.
gradpivot.runs.run.Running.__init__.__kwdefaults__["checkpoint_seconds"] = 0

class Watched(Classification):
    def retain_loss(self, model, batch):
        if (HERE / "slowly").exists():
            time.sleep(0.2)
        if (HERE / f"fail-{RANK}").exists():
            raise GradPivotError("this process fails")
        return super().retain_loss(model, batch)

def model():
    torch.manual_seed(int(RANK) if (HERE / "unlike").exists() else 0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

def data():
    return blobs(), blobs(seed=1)

def problem():
    return Problem(name="watched", load=data, model=model, task=Watched())
"""
WORDS = ["unlearn", "cup", "--problem", "watched:problem", "--classes", "0", "--epochs", "4", "--lr", "0.01",
         "--batch-size", "7", "--weights", "original.safetensors"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the problem, its original model, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("torchrun")
    (folder / "watched.py").write_text(MODULE)
    done = subprocess.run([sys.executable, "-c", ONE_PROCESS], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


ONE_PROCESS = f"""
import sys
sys.path.insert(0, ".")
import watched
from gradpivot.cli import main
from gradpivot.models.checkpoints.weights import save_weights
save_weights(watched.model(), "original.safetensors")
raise SystemExit(main({WORDS!r} + ["--out", "one"]))
"""


def start(place: Path, out: str, *, slowly: bool = False, words: list[str] = WORDS) -> subprocess.Popen[str]:
    (place / "slowly").touch() if slowly else (place / "slowly").unlink(missing_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*command, "-m", "gradpivot", *words, "--out", out],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ours(stderr: str) -> list[str]:
    """What we said; torchrun adds a report of its own."""
    return [line for line in stderr.splitlines() if line.startswith("gradpivot: ")]


@pytest.mark.slow
def test_killed_and_continued_is_one_process(place):
    """One of two processes is killed: one line, a checkpoint. Started again, they end where one process does."""
    out = place / "two"
    killed = start(place, "two", slowly=True)
    wait_for(out / "checkpoint.pt", killed)
    os.kill(int((place / "pid-1").read_text()), signal.SIGKILL)
    _, stderr = killed.communicate(timeout=PATIENCE)
    assert killed.returncode != 0
    told = ours(stderr)
    assert len(told) <= 1  # torchrun may end the survivor before it has noticed
    assert all("lost contact with the others" in line for line in told)
    assert (out / "checkpoint.pt").exists()
    assert not (out / "metrics.json").exists()

    continued = start(place, "two")
    stdout, stderr = continued.communicate(timeout=PATIENCE)
    assert continued.returncode == 0, stderr
    assert ours(stderr) == []
    assert stdout.count("The run is in two") == 1
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in (place / "one").iterdir())
    one, two = (load_file(place / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        assert (weight - two[name]).abs().max() < 1e-5
    first, second = (json.loads((place / name / "metrics.json").read_text()) for name in ("one", "two"))
    assert first["scores"] == pytest.approx(second["scores"], abs=1e-6)
    assert [r["provenance"]["environment"]["processes"] for r in (first, second)] == [1, 2]
    configs = [yaml.safe_load((place / name / "config.yaml").read_text()) for name in ("one", "two")]
    assert configs[0] == configs[1]


@pytest.mark.slow
def test_the_first_process_trains_the_original_for_all(place):
    """Each would start from other weights here; on a GPU no two trainings give the same either."""
    (place / "unlike").touch()
    try:
        process = start(place, "trained", words=[*WORDS[: WORDS.index("--weights")], "--device", "cpu"])
        _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        (place / "unlike").unlink()
    assert process.returncode == 0, stderr
    assert yaml.safe_load((place / "trained" / "config.yaml").read_text())["device"] == "cpu"


@pytest.mark.slow
def test_ctrl_c_is_one_line(place):
    process = start(place, "stopped", slowly=True)
    wait_for(place / "stopped" / "checkpoint.pt", process)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    told = ours(stderr)
    assert len(told) == 1
    assert "interrupted" in told[0]
    assert (place / "stopped" / "checkpoint.pt").exists()


@pytest.mark.slow
def test_one_process_that_fails_ends_all_with_one_line(place):
    (place / "fail-1").touch()
    try:
        process = start(place, "failed")
        _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        (place / "fail-1").unlink()
    assert process.returncode != 0
    assert ours(stderr) == ["gradpivot: this process fails"]
    assert not (place / "failed" / "metrics.json").exists()


@pytest.fixture
def as_process(monkeypatch):
    """Pretend to be one of two processes that have not met yet."""

    def pretend(rank: int) -> None:
        told = {"RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 2, "MASTER_PORT": 1}
        for name, value in {**told, "MASTER_ADDR": "localhost"}.items():
            monkeypatch.setenv(name, str(value))
        # As if torchrun had ended this process while it waited for the one that speaks.
        monkeypatch.setattr(torchrun.time, "sleep", ended if rank else None)

    def ended(seconds: float) -> None:
        raise SystemExit(-signal.SIGTERM)

    return pretend


@pytest.mark.parametrize("words", [["demo"], ["sweep", "digits", "--store", "s"], ["methods"]])
def test_other_commands_run_in_one_process(as_process, capsys, words):
    as_process(0)
    assert main(words) == 1
    assert capsys.readouterr().err == f"gradpivot: {words[0]!r} runs in one process; torchrun is for 'unlearn'\n"


@pytest.mark.parametrize("words", [["demo"], ["unlearn", "cup", "--gama", "1"], ["--help"]])
def test_all_but_the_first_are_silent(as_process, capsys, words):
    as_process(1)
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == -signal.SIGTERM
    told = capsys.readouterr()
    assert told.out == told.err == ""


def test_a_failure_of_its_own_before_they_have_met_is_told(as_process, capsys, monkeypatch):
    as_process(1)
    monkeypatch.setattr(torchrun.time, "sleep", lambda seconds: None)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_one_process_under_torchrun_is_no_group(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not torchrun.launched()
    assert torchrun.is_first()
    with torchrun.joined("cpu") as replicas:
        assert replicas.size == 1
    assert torchrun.device_of_process("cuda") == "cuda"


def test_too_few_gpus_are_told_before_anything_starts(as_process, monkeypatch):
    import torch

    as_process(0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(GradPivotError, match="at most 1"), torchrun.joined("cuda"):
        pass


@pytest.mark.parametrize(
    ("option", "kind", "device"),
    [([], "cuda", "cuda:1"), (["--device", "auto"], "cuda", "cuda:1"), (["--device", "cpu"], "cpu", "cpu")],
)
def test_processes_take_a_gpu_each_unless_told_otherwise(as_process, monkeypatch, option, kind, device):
    """The kind is asked for once; the group, the model and what is recorded all go by it."""
    import torch

    as_process(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked: list[str] = []

    @contextmanager
    def joined(kind: str):
        asked.append(kind)
        yield Replicas(1, 2)

    def original_of(chosen, problem, split, device, replicas):
        asked.append(device)
        raise KeyboardInterrupt

    monkeypatch.setattr(unlearning, "joined", joined)
    monkeypatch.setattr(unlearning, "original_of", original_of)
    with pytest.raises(KeyboardInterrupt):
        commands.run(parse(["unlearn", "cup", "--classes", "0", *option]))
    assert asked == [kind, device]


def test_cpus_do_not_count_gpus(as_process, monkeypatch):
    """With --device cpu more processes than GPUs are no mistake."""
    import torch

    as_process(0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def met(url: str):
        raise InterruptedError

    # The package has a function of the module's name.
    monkeypatch.setattr(sys.modules["torch.distributed.rendezvous"], "rendezvous", met)
    with pytest.raises(InterruptedError), torchrun.joined("cpu"):
        pass


def test_each_failure_is_told_once(monkeypatch):
    class Store:
        def __init__(self) -> None:
            self.counts: dict[str, int] = {}

        def add(self, key: str, by: int) -> int:
            self.counts[key] = self.counts.get(key, 0) + by
            return self.counts[key]

        def set(self, key: str, value: str) -> None:
            self.counts[key] = 1

        def check(self, keys: list[str]) -> bool:
            return all(key in self.counts for key in keys)

    monkeypatch.setattr(torchrun, "_store", Store())
    assert torchrun.may_speak("the others are gone", of_others=True)
    monkeypatch.setattr(torchrun, "_store", Store())
    assert [torchrun.may_speak("it failed") for _ in range(3)] == [True, False, False]
    assert not torchrun.may_speak("the others are gone", of_others=True)
    monkeypatch.setattr(torchrun, "_store", object())
    assert torchrun.may_speak("nobody to ask")
