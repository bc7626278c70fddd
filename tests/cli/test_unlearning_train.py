from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from gradpivot.cli import main
from gradpivot.cli.parser import parse
from gradpivot.experiments.problems.digits import digits
from gradpivot.methods.retrain import Retrain

QUICK = ["--epochs", "2", "--evaluate-every", "0"]

MODULE = '''
import sys, time
from pathlib import Path
import torch
from torch import nn
from gradpivot.methods.retrain import Retrain
from gradpivot.experiments.problem import Problem
from gradpivot.testing.problems import TinyNet, blobs

class Slow(TinyNet):
    """Waits in every batch of training while somebody watches."""
    def forward(self, features):
        if self.training and (Path(__file__).parent / "slow").exists():
            time.sleep(0.02)
        return super().forward(features)

def problem():
    return Problem(name="slow", load=lambda: (blobs(40), blobs(20, seed=1)), model=Slow,
                   training=Retrain.from_dict({**Retrain.short, "epochs": 8, "batch_size": 8, "lr": 0.05}))
'''


def error_of(capsys) -> str:
    message = capsys.readouterr().err
    assert message.startswith("gradpivot: ")
    assert message.count("\n") == 1
    return message


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("train") / "out"
    assert main(["train", *QUICK, "--seed", "2", "--out", str(out)]) == 0
    return out


@pytest.mark.numeric
def test_leaves_a_folder_that_says_everything(folder, capsys):
    names = {path.name for path in folder.iterdir()}
    assert names == {".lock", "config.yaml", "environment.json", "metrics.json", "model.safetensors"}
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["schema"] == "gradpivot.training/1"
    assert [epoch["number"] for epoch in metrics["epochs"]] == [1, 2]
    assert metrics["epochs"][0]["test_accuracy"] is None
    assert metrics["epochs"][1]["test_accuracy"] == metrics["test_accuracy"] > 0.5
    assert metrics["images_per_second"] > 0
    with safe_open(str(folder / "model.safetensors"), framework="pt") as file:
        facts = json.loads(file.metadata()["gradpivot"])
    assert (facts["problem"], facts["model"], facts["seed"]) == ("digits", "SmallCNN", 2)
    assert facts["recipe"]["epochs"] == 2
    assert len(facts["data"]) == 64
    assert facts["test_accuracy"] == metrics["test_accuracy"]
    everything = "".join(p.read_text() for p in folder.iterdir() if p.suffix != ".safetensors")
    assert str(folder.parent) not in everything


def test_its_weights_are_what_unlearning_starts_from(folder, tmp_path):
    words = ["unlearn", "cup", "--classes", "3", "--epochs", "1", "--seed", "2"]
    given, own = tmp_path / "given", tmp_path / "own"
    assert main([*words, "--weights", str(folder / "model.safetensors"), "--out", str(given)]) == 0
    used = load_file(given / "original.safetensors")
    assert all(torch.equal(t, used[n]) for n, t in load_file(folder / "model.safetensors").items())
    assert not own.exists()


def test_its_config_repeats_it(folder, tmp_path):
    again = tmp_path / "again"
    assert main(["train", "--config", str(folder / "config.yaml"), "--out", str(again)]) == 0
    first, second = (load_file(f / "model.safetensors") for f in (folder, again))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (again / "config.yaml").read_text() == (folder / "config.yaml").read_text()


def test_a_finished_training_is_not_replaced_by_accident(folder, capsys):
    assert main(["train", *QUICK, "--seed", "3", "--out", str(folder)]) == 1
    assert "--overwrite" in error_of(capsys)


def test_rerun_says_what_a_training_is(folder, capsys):
    assert main(["rerun", str(folder)]) == 1
    assert "gradpivot train --config" in error_of(capsys)


def test_recipes_and_what_is_typed_over_them():
    assert parse(["train"]).training == digits().training
    assert parse(["train", "--recipe", "paper"]).training == Retrain.protocol("paper")
    short = parse(["train", "--recipe", "short", "--epochs", "9"]).training
    assert short == Retrain.from_dict({**Retrain.short, "epochs": 9})
    # cifar10 is the problem with augmentation of its own.
    flipped = parse(["train", "--problem", "cifar10", "--recipe", "short"]).training
    assert flipped == Retrain.from_dict({**Retrain.short, "augment": "crop_flip"})
    assert parse(["train", "--recipe=short", "--no-nesterov"]).training.nesterov is False


def test_a_typed_default_wins_over_the_problems_recipe():
    """It was not told from one that was not typed, and the problem's recipe was taken in its place."""
    toy = ["unlearn", "retrain", "--problem", "toy", "--classes", "2"]
    own, typed = parse(toy).method, parse([*toy, "--epochs", "30", "--optimizer", "sgd"]).method
    assert (own.epochs, own.optimizer) == (100, "adam")
    assert (typed.epochs, typed.optimizer) == (30, "sgd")
    assert typed.lr == own.lr
    printed = parse([*toy, "--protocol", "paper"]).method
    assert printed == Retrain.protocol("paper")


def test_options_from_a_file(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("recipe: short\nproblem: cifar10\nlr: 0.4\nmethod: retrain\n")
    chosen = parse(["train", "--config", str(file), "--epochs", "3"])
    assert (chosen.problem, chosen.training.lr, chosen.training.epochs) == ("cifar10", 0.4, 3)
    assert chosen.training.augment == "crop_flip"


def test_settings_that_exclude_each_other_exit_with_two(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--nesterov", "--momentum", "0"])
    assert stop.value.code == 2
    assert "nesterov needs SGD with momentum" in error_of(capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "--lr", "-1"], "lr is -1.0; it must be a number > 0"),
        (["train", "--epochs", "0"], "epochs is 0; it must be an integer ≥ 1"),
        (["unlearn", "cup", "--classes", "3", "--lr", "-1"], "lr is -1.0; it must be a number > 0"),
    ],
)
def test_a_value_out_of_range_is_one_line_that_names_it(words, told, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert told in error_of(capsys)


def test_what_is_no_number_is_told_by_the_parser(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--lr", "much", "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "--lr" in message
    assert message.count("much") == 1


def test_a_checkpoint_every_less_than_nothing_is_refused(tmp_path, capsys):
    words = ["train", *QUICK, "--checkpoint-every", "-1", "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert "the checkpoint interval is -1 s; it must be ≥ 0" in error_of(capsys)


def test_help_imports_no_torch():
    code = (
        "import sys\nfrom gradpivot.cli import main\ntry: main(['train', '--help-all'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--label-smoothing" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "mps"], "lacks float64"),
        (["--problem", "digit"], "did you mean 'digits'"),
        (["--evaluate-every", "-1"], "evaluate_every is -1"),
        (["--normalise", "none"], "--normalise needs --model"),
    ],
)
def test_what_people_get_wrong_is_one_line(words, told, tmp_path, capsys):
    assert main(["train", *QUICK, *words, "--out", str(tmp_path / "out")]) == 1
    assert told in error_of(capsys)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(tmp_path, capsys):
    for command in (["train"], ["unlearn", "cup", "--classes", "3"], ["trace", "cup", "--classes", "3"]):
        assert main([*command, "--device", "cuda", "--out", str(tmp_path / "out")]) == 1
        assert "torch finds no CUDA device; use cpu or auto" in error_of(capsys)
    assert main(["train", *QUICK, "--device", "auto", "--out", str(tmp_path / "out")]) == 0
    assert yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["device"] == "cpu"


def test_a_diverged_training_has_a_status_of_its_own(tmp_path, capsys):
    assert main(["train", *QUICK, "--lr", "1e30", "--out", str(tmp_path)]) == 3
    assert "Training diverged at step" in capsys.readouterr().out
    assert json.loads((tmp_path / "metrics.json").read_text())["diverged"]["step"] >= 0


def test_json_alone(tmp_path, capsys):
    assert main(["train", *QUICK, "--json", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == json.loads((tmp_path / "metrics.json").read_text())
    assert told.err == ""


def test_a_line_an_epoch_in_a_log(tmp_path, capsys):
    assert main(["train", "--epochs", "2", "--out", str(tmp_path)]) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("epoch 1/2: loss ")
    assert "test accuracy" in first
    assert first.endswith(" left")
    assert last.startswith("epoch 2/2: loss ")


def test_another_model_by_name(tmp_path):
    assert main(["train", *QUICK, "--model", "small", "--epochs", "1", "--out", str(tmp_path)]) == 0
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["model"] == "small"
    facts = json.loads((tmp_path / "metrics.json").read_text())["provenance"]
    assert facts["model"] == "SmallResNet"


@pytest.mark.slow
def test_precision_is_in_the_folder_and_in_the_rerun(folder, tmp_path, capsys):
    words = ["unlearn", "cup", "--classes", "3", "--epochs", "1", "--precision", "bfloat16"]
    out = tmp_path / "run"
    assert main([*words, "--weights", str(folder / "model.safetensors"), "--out", str(out)]) == 0
    assert yaml.safe_load((out / "config.yaml").read_text())["precision"] == "bfloat16"
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["provenance"]["precision"] == "bfloat16"
    capsys.readouterr()
    assert main(["rerun", str(out)]) == 0
    assert "The same scores" in capsys.readouterr().out


@pytest.fixture
def slow(tmp_path) -> Path:
    (tmp_path / "slow_problem.py").write_text(MODULE)
    (tmp_path / "slow").touch()
    return tmp_path


def command(out: str) -> list[str]:
    return [sys.executable, "-m", "gradpivot", "train", "--problem", "slow_problem:problem",
            "--checkpoint-every", "0", "--out", out]  # fmt: skip


def without_progress(lines: Iterable[str]) -> Iterator[str]:
    """Lines of standard error; a busy machine adds one on the progress every few seconds."""
    return (line for line in lines if not line.startswith("Training "))


def stopped(folder: Path, how: signal.Signals) -> tuple[int, str]:
    """Train in a process of its own until its second epoch is told, then send a signal."""
    process = subprocess.Popen(
        command("out"), cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.stderr is not None
    epochs = without_progress(process.stderr)
    assert [next(epochs)[:9] for _ in range(2)] == ["epoch 1/8", "epoch 2/8"]
    process.send_signal(how)
    _, message = process.communicate(timeout=60)
    assert (folder / "out" / "checkpoint.pt").exists()
    assert not (folder / "out" / "metrics.json").exists()
    return process.returncode, message


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_stop_is_one_line_that_says_how_to_go_on(slow, how):
    status, message = stopped(slow, how)
    assert status == 130
    *epochs, last = without_progress(message.splitlines())
    assert all(line.startswith("epoch") for line in epochs)
    assert "Run the same command to continue" in last


@pytest.mark.slow
def test_killed_and_started_again_is_uninterrupted(slow):
    """kill -9 to a real process; the weights are those of a training that nobody stopped, bit for bit."""
    status, _ = stopped(slow, signal.SIGKILL)
    assert status == -signal.SIGKILL
    (slow / "slow").unlink()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    lines = {}
    for out in ("out", "whole"):
        done = subprocess.run(command(out), cwd=slow, env=environment, check=True, capture_output=True, text=True)
        lines[out] = list(without_progress(done.stderr.splitlines()))
    killed, whole = (load_file(slow / out / "model.safetensors") for out in ("out", "whole"))
    assert all(torch.equal(killed[name], whole[name]) for name in whole)
    metrics = [json.loads((slow / out / "metrics.json").read_text())["epochs"] for out in ("out", "whole")]
    assert metrics[0] == metrics[1]
    # It went on where it was: the first epoch is not told a second time.
    assert len(lines["whole"]) == 8
    assert not any(line.startswith("epoch 1/8") for line in lines["out"])
    assert not (slow / "out" / "checkpoint.pt").exists()


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["train", "--epochs", "1", "--out", str(tmp_path / "file" / "below")]) == 1
    told = capsys.readouterr().err
    assert "cannot be written" in told
    assert told.count("\n") == 1
