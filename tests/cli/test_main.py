from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import yaml

from gradpivot import NotReachedWarning, __version__
from gradpivot.cli import main
from gradpivot.cli.parser import parse
from gradpivot.dial.ramp import target_degree
from gradpivot.methods.registry import list_methods

QUICK = ["--classes", "3", "--epochs", "1"]
SINGLE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Weights of a digits model, trained once for this file."""
    out = tmp_path_factory.mktemp("first") / "run"
    assert main(["unlearn", "cup", *QUICK, "--out", str(out)]) == 0
    return out / "original.safetensors"


@pytest.fixture
def unlearn(original, tmp_path):
    def run(*words: str, out: str = "run") -> int:
        return main(["unlearn", *words, "--weights", str(original), "--out", str(tmp_path / out)])

    return run


def error_of(capsys) -> str:
    message = capsys.readouterr().err
    assert message.startswith("gradpivot: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gradpivot {__version__}\n"
    for words in (["--help"], ["unlearn", "--help"], ["demo", "--help"], []):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        assert "gradpivot" in capsys.readouterr().out


def with_no_reader(*words: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """What comes of 'gradpivot … | head -1'; here the reader is gone before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gradpivot", *words]
    env = {**SINGLE_THREAD, "PYTHONUNBUFFERED": unbuffered}
    try:
        return subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, check=False)
    finally:
        os.close(writing)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["data", "list"], ["methods", "--json"], ["--help"], ["--version"]])
def test_a_reader_that_has_gone_is_no_error(words, unbuffered):
    done = with_no_reader(*words, unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_told_though_the_reader_has_gone(tmp_path):
    done = with_no_reader("report", str(tmp_path / "none.json"))
    assert done.returncode == 1
    assert done.stderr.startswith("gradpivot: ")


def imports_torch(code: str) -> bool:
    probe = f"import sys\n{code}\nsys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert not done.stderr
    return bool(done.returncode)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["methods", "--json"],
        ["recipes", "digits"],
        ["sweep", "--help"],
        ["--version"],
        ["completion", "bash"],
    ],
)
def test_starts_without_torch(words):
    call = f"from gradpivot.cli import main\ntry: main({words!r})\nexcept SystemExit: pass"
    assert not imports_torch(call)


@pytest.mark.parametrize(
    "words",
    [
        ["unlearn", "cup"],
        ["unlearn", "--classes", "3", "--until", "UX>=5"],
        ["unlearn", "--classes", "3", "--weights", "none.pt"],
        ["trace", "--classes", "3", "--best", "UX"],
    ],
)
def test_wrong_options_are_reported_without_torch(words):
    probe = f"import sys\nfrom gradpivot.cli import main\nstatus = main({words!r})\n"
    probe += "sys.exit(7 if 'torch' in sys.modules else status)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False)
    assert done.returncode == 1


@pytest.mark.slow
def test_reports_need_no_torch():
    assert not imports_torch(
        "import gradpivot.report.run.page, gradpivot.report.common.tables, gradpivot.report.run.summary"
    )
    assert imports_torch("from gradpivot import unlearn")


def test_methods_as_json(capsys):
    assert main(["methods", "--json"]) == 0
    told = {method["name"]: method for method in json.loads(capsys.readouterr().out)}
    assert {"cup", "ga", "ws", "retrain"} <= set(told)
    assert told["cup"]["knob"] == "gamma"
    assert told["cup"]["paper"]["objective"] == "negative_ce"
    assert main(["methods", "w*"]) == 0
    assert "cup" not in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "unlearn" in capsys.readouterr().out


@pytest.mark.slow
def test_unlearn_leaves_a_complete_folder_that_can_be_run_again(unlearn, tmp_path, capsys):
    assert unlearn("cup", "--gamma", "0.4", *QUICK) == 0
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        ".lock", "config.yaml", "environment.json", "history.csv", "metrics.json", "model.safetensors",
        "original.safetensors", "split.json",
    }  # fmt: skip
    before, after, *_ = capsys.readouterr().out.splitlines()
    assert before.startswith("before  RA ")
    assert after.startswith("after   RA ")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert 0 <= metrics["scores"]["ua"] <= 1
    assert f"UA {100 * metrics['original']['ua']:.2f} %" in before
    assert f"UA {100 * metrics['scores']['ua']:.2f} %" in after
    assert metrics["asked_ua"] == pytest.approx(
        metrics["original"]["ua"] + (1 - metrics["original"]["ua"]) * target_degree(0.4)
    )
    assert metrics["provenance"]["split"]["classes"] == [3]
    assert yaml.safe_load((folder / "config.yaml").read_text())["gamma"] == 0.4
    header, *rows = (folder / "history.csv").read_text().splitlines()
    assert header.startswith("step,forget_loss,retain_loss,cosine")
    assert len(rows) == 19
    everything = "".join(p.read_text() for p in folder.iterdir() if p.suffix != ".safetensors")
    assert str(tmp_path) not in everything
    capsys.readouterr()
    assert main(["rerun", str(folder)]) == 0
    assert "to the last digit" in capsys.readouterr().out


def test_rerun_notices_other_numbers(unlearn, tmp_path, capsys):
    unlearn("cup", *QUICK)
    path = tmp_path / "run" / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["scores"]["ua"] = 0.123
    path.write_text(json.dumps(metrics))
    capsys.readouterr()
    assert main(["rerun", str(tmp_path / "run")]) == 1
    assert "ua 0.123 then" in error_of(capsys)


def test_a_finished_run_is_not_replaced_by_accident(unlearn, tmp_path, capsys):
    assert unlearn("cup", *QUICK) == 0
    capsys.readouterr()
    assert unlearn("cup", *QUICK, "--gamma", "0.6") == 1
    assert "--overwrite" in error_of(capsys)
    assert unlearn("cup", *QUICK, "--overwrite") == 0


def test_json_output_is_json_alone(unlearn, capsys):
    assert unlearn("ws", "--forget-weight", "0.5", *QUICK, "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["n_forget"] == 146


def test_options_from_a_file_and_typed_ones_win(unlearn, tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("method: ws\nforget-weight: 0.25\nclasses: 4\nepochs: 3\nmax_norm: null\n")
    assert unlearn("--config", str(file), "--epochs", "1") == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["method"], config["forget_weight"], config["classes"]) == ("ws", 0.25, "4")
    assert (config["epochs"], config["max_norm"]) == (1, None)


def test_every_command_that_runs_takes_a_file(tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("seed: 7\nout: there\njson: true\n")
    chosen = parse(["demo", "--config", str(file), "--out", "here"])
    assert (chosen.seed, str(chosen.out), chosen.json) == (7, "here", True)
    assert parse(["reproduce", "toy", "--config", str(file)]).chosen.seed == 7


def test_protocol_sets_the_papers_defaults():
    assert parse(["unlearn", "cup", "--protocol", "paper"]).method.objective == "negative_ce"
    assert parse(["unlearn", "cup", "--protocol=paper", "--batch-size", "8"]).method.batch_size == 8
    assert parse(["unlearn", "--gamma", "0.3"]).method.gamma == 0.3
    assert parse(["unlearn", "--seed", "4", "ga", "--lr", "0.5"]).method.lr == 0.5


def test_what_is_no_terminal_gets_its_lines_whole(unlearn, tmp_path, capsys):
    long = "/".join(["a_long_name_of_a_folder"] * 6)
    assert unlearn("cup", *QUICK, out=long) == 0
    assert f"The run is in {tmp_path / long}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_trace_of_records_without_a_reference_shows_every_run(original, tmp_path, capsys):
    (tmp_path / "who.txt").write_text("3\n14\n15\n")
    words = ["--indices", str(tmp_path / "who.txt"), "--epochs", "1", "--values", "0", "1", "--no-reference"]
    words += ["--pick", "AUC<=100", "--best", "AUC"]
    out = tmp_path / "traced"
    assert main(["trace", "cup", *words, "--weights", str(original), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    # Two runs, and the picked one.
    assert sum(line.strip().startswith("CUP") for line in told.splitlines()) == 3


def test_random_and_indexed_forgetting(unlearn, tmp_path, capsys):
    assert unlearn("cup", "--fraction", "0.1", "--gamma", "1") == 0
    (tmp_path / "who.txt").write_text("3\n14\n15\n")
    capsys.readouterr()
    assert unlearn("cup", "--indices", str(tmp_path / "who.txt"), "--shrink", "1", "--epochs", "1", out="second") == 4
    told = capsys.readouterr()
    assert "reached 0.01 %: 1 steps are few; use more epochs" in told.err
    # Before and after, on the half of the test data that did not steer.
    assert told.out.count(" %, AUC ") == told.out.count("(held-out data ") == 2
    assert "TA, AUC and Uncertainty use half of the test data" in told.out
    assert "MIA" not in told.out
    assert {"mia", "auc", "uncertainty_ideal"} <= json.loads((tmp_path / "second/metrics.json").read_text())[
        "scores"
    ].keys()
    (tmp_path / "who.txt").unlink()
    capsys.readouterr()
    assert main(["rerun", str(tmp_path / "second")]) == 4
    told = capsys.readouterr()
    assert "to the last digit" in told.out
    assert told.err.count("1 steps are few; use more epochs") == 1


def test_customers_are_forgotten_by_their_ids(unlearn, tmp_path, capsys):
    """A list of requests, and whose the training samples are: as a CSV file and as plain text."""
    owners = [f"C-{index // 3}" for index in range(1437)]
    rows = [f'"{owner}";"x, y"' for owner in owners]
    (tmp_path / "train.csv").write_bytes("\r\n".join(["\ufeffcustomer;note", *rows]).encode())
    (tmp_path / "owners.txt").write_text("\n".join(owners))
    (tmp_path / "requests.csv").write_text("asked,customer\nMay,C-2\nMay,C-400\nJune,C-2\n")
    (tmp_path / "who.txt").write_text("# of May\nC-2\n\nC-400  # twice\nC-2\n")
    named = (("requests.csv:customer", "train.csv:customer"), ("who.txt", "owners.txt"))
    for number, (requests, ids) in enumerate(named):
        words = ["--indices", str(tmp_path / requests), "--ids", str(tmp_path / ids), "--gamma", "0"]
        assert unlearn("cup", *words, "--epochs", "1", "--json", out=f"run{number}") == 0
        told = capsys.readouterr()
        repeated = f"repeated entries of {tmp_path / requests}: 1 of 3"
        assert f"gradpivot: 2 ids stand for 6 of 1,437 training samples; {repeated}\n" in told.err
        assert json.loads(told.out)["provenance"]["split"]["n_forget"] == 6
        split = (tmp_path / f"run{number}" / "split.json").read_text()
        assert json.loads(split)["forget_indices"] == [6, 7, 8, 1200, 1201, 1202]
        assert "C-" not in split
    config = yaml.safe_load((tmp_path / "run1" / "config.yaml").read_text())
    assert (config["indices"], config["ids"]) == (str(tmp_path / "who.txt"), str(tmp_path / "owners.txt"))
    (tmp_path / "who.txt").unlink()
    (tmp_path / "owners.txt").unlink()
    assert main(["rerun", str(tmp_path / "run1")]) == 0


def test_an_index_twice_is_one_sample(unlearn, tmp_path, capsys):
    (tmp_path / "who.txt").write_text("3 14\n# again\n14\n")
    assert unlearn("cup", "--indices", str(tmp_path / "who.txt"), "--gamma", "0", "--epochs", "1") == 0
    assert f"repeated entries of {tmp_path / 'who.txt'}: 1 of 3" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["scores"]["n_forget"] == 2


@pytest.mark.parametrize(
    ("requests", "ids", "message"),
    [
        ("C-7", ["C-7"] * 1436, "there are 1,436 ids for 1,437 training samples"),
        ("C-7\nD-8", ["C-7"] * 1437, "1 of 2 ids belong to no training sample: 'D-8'; correct them, or remove them"),
        ("", ["C-7"] * 1437, "the forget set is empty"),
        ("C-7", None, "has 'C-7'; if these are ids, also give the id of every training sample (--ids FILE)"),
    ],
)
def test_ids_that_do_not_fit_are_one_line(unlearn, tmp_path, capsys, requests, ids, message):
    (tmp_path / "who.txt").write_text(requests)
    words = ["--indices", str(tmp_path / "who.txt")]
    if ids:
        (tmp_path / "ids.txt").write_text("\n".join(ids))
        words += ["--ids", str(tmp_path / "ids.txt")]
    assert unlearn("cup", *words) == 1
    told = capsys.readouterr().err
    assert message in told.splitlines()[-1]
    assert told.count("\n") <= 2


@pytest.mark.parametrize("as_json", [False, True])
def test_a_degree_that_was_not_reached_has_a_status_of_its_own_and_is_saved(unlearn, tmp_path, capsys, as_json):
    """One line on standard error, no Python warning; also in the folder, so also as JSON."""
    words = ["cup", *QUICK, "--gamma", "1", "--lr", "1e-6", *(["--json"] if as_json else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotReachedWarning)
        assert unlearn(*words) == 4
    told = capsys.readouterr()
    line = told.err.splitlines()[-1]
    assert re.match(r"gradpivot: .*asked for UA 100.0 %, reached .* %: 19 steps are few; use more epochs", line)
    assert told.err.count("asked for UA") == 1
    saved = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert line == f"gradpivot: {saved['missed']}"
    assert not as_json or json.loads(told.out)["missed"] == saved["missed"]
    assert (tmp_path / "run" / "model.safetensors").exists()
    # The reason is not lost when the command is repeated, or another one would replace the run.
    assert unlearn(*words) == 4
    assert saved["missed"] in capsys.readouterr().out
    assert unlearn(*words, "--seed", "1") == 1
    assert f"with other settings ({saved['missed']}); choose another folder" in error_of(capsys)


def test_a_degree_that_was_reached_is_no_miss(unlearn, tmp_path, capsys):
    assert unlearn("cup", *QUICK, "--gamma", "0") == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["missed"] is None
    assert "asked for" not in capsys.readouterr().err


def test_a_second_request_leaves_out_the_first(unlearn, tmp_path, capsys):
    (tmp_path / "who.txt").write_text("3\n14\n15\n")
    assert unlearn("cup", "--indices", str(tmp_path / "who.txt"), "--epochs", "1", out="first") == 0
    capsys.readouterr()
    for earlier in (tmp_path / "first" / "split.json", tmp_path / "who.txt"):
        words = ["--already-forgotten", str(earlier), "--epochs", "1", "--overwrite"]
        assert unlearn("cup", "--fraction", "0.02", *words, out="second") == 0
        assert "earlier 3 records already forgotten: mean uncertainty 0." in capsys.readouterr().out
        split = json.loads((tmp_path / "second" / "split.json").read_text())
        assert split["already_forgotten"] == [3, 14, 15]
        assert not {3, 14, 15} & set(split["forget_indices"])
        assert json.loads((tmp_path / "second" / "metrics.json").read_text())["already_forgotten"]["n"] == 3
    (tmp_path / "who.txt").unlink()
    assert main(["rerun", str(tmp_path / "second")]) == 0
    assert "The same scores" in capsys.readouterr().out


def test_a_second_request_starts_from_the_model_of_the_first(tmp_path, capsys):
    assert main(["unlearn", "cup", "--classes", "3", "--already-forgotten", str(tmp_path / "split.json")]) == 1
    assert "add --weights with the last run's model.safetensors" in error_of(capsys)


def test_divergence_is_told_and_has_a_status_of_its_own(unlearn, tmp_path, capsys):
    words = ["--protocol", "paper", "--gamma", "0.9", "--lr", "0.1", "--batch-size", "8", "--classes", "3"]
    assert unlearn("cup", *words) == 3
    told = capsys.readouterr().out
    assert "diverged at step" in told
    assert "Lower lr, or set max_norm, or use objective unlikelihood." in told
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["diverged"]["step"] > 0
    assert main(["rerun", str(tmp_path / "run")]) == 3
    assert "diverged again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cup"], "name what to forget"),
        (["cup", "--classes", "3", "--fraction", "0.1"], "--classes and --fraction both name what to forget"),
        (["cup", "--classes", "12"], "its classes are 0, 1"),
        (["cup", "--classes", "3", "--ids", "who.txt"], "name those to forget with --indices FILE"),
        (["cup", "--classes", "three"], "write 3, or 3,5, or 0-4"),
        (["cup", "--fraction", "2"], "between 0 and 1"),
        (["cup", "--indices", "/no/such/file"], "cannot read /no/such/file: No such file"),
        (["cup", "--classes", "3", "--already-forgotten", "/no/such/file"], "cannot read /no/such/file: No such file"),
        (["cup", "--classes", "3", "--already-forgotten", "/no/such.json"], "there is no split file"),
        (["cup", "--classes", "3", "--problem", "digts"], "did you mean 'digits'"),
        (["cup", "--classes", "3", "--problem", "no.module:f"], "cannot load the problem"),
        (["cup", "--classes", "3", "--threads", "0"], "give 1 to 1,024"),
        (["--config", "/no/such/file.yaml"], "cannot read the options file"),
    ],
)
def test_what_people_get_wrong_is_one_line(unlearn, words, message, capsys):
    assert unlearn(*words) == 1
    assert message in error_of(capsys)


@pytest.mark.parametrize("content", ["a: [1", "- 1\n- 2\n"])
def test_files_that_are_no_options(tmp_path, content, capsys):
    (tmp_path / "o.yaml").write_text(content)
    assert main(["unlearn", "--config", str(tmp_path / "o.yaml")]) == 1
    assert "options file" in error_of(capsys)


@pytest.mark.parametrize("words", [["unlern"], ["unlearn", "cup", "--gama", "0.3"], ["unlearn", "cup", "--gamma", "3"]])
def test_mistyped_words_exit_with_two(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trace", "cup", "--gammas", "0", "0.5", "1"], "'trace' has no option '--gammas'; did you mean '--values'?"),
        (["trace", "--problem", "a:b", "--gammas", "0", "1"], "did you mean '--values'?"),
        (["unlearn", "cup", "--gama", "0", "1"], "did you mean '--gamma'?"),
        (["unlearn", "cup", "--gamma", "half"], "--gamma is 'half'; give a number"),
        (["unlearn", "cup", "--epochs", "many"], "--epochs is 'many'; give a whole number"),
        (["trace", "cup", "--values", "a", "b"], "--values is 'a', 'b'; give numbers"),
    ],
)
def test_a_wrong_option_or_value_is_one_short_line(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    told = error_of(capsys)
    assert message in told
    assert len(told) < 120


def test_damaged_weights_are_refused(tmp_path, capsys):
    (tmp_path / "w.safetensors").write_bytes(b"\x08\x00\x00\x00junk")
    words = ["unlearn", "cup", *QUICK, "--weights", str(tmp_path / "w.safetensors"), "--out", str(tmp_path / "x")]
    assert main(words) == 1
    assert "damaged" in error_of(capsys)
    assert main(["rerun", str(tmp_path)]) == 1
    assert "not a run folder" in error_of(capsys)
    assert main(["report", str(tmp_path / "none.json")]) == 1
    assert "no file" in error_of(capsys)


def test_a_full_disk_is_one_line_and_leaves_the_old_file(unlearn, tmp_path, monkeypatch, capsys):
    assert unlearn("cup", *QUICK) == 0
    before = (tmp_path / "run" / "metrics.json").read_text()
    capsys.readouterr()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert unlearn("cup", *QUICK, "--overwrite") == 1
    assert "disk is full" in error_of(capsys)
    assert (tmp_path / "run" / "metrics.json").read_text() == before
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".") and p.name != ".lock"]


def test_a_problem_of_ones_own_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from gradpivot.experiments.problem import Problem\n"
        "from gradpivot.methods.retrain import Retrain\n"
        "from gradpivot.testing.problems import TinyNet, blobs\n"
        "def problem():\n"
        "    return Problem(name='mine', load=lambda: (blobs(), blobs(seed=1)), model=TinyNet,\n"
        "                   training=Retrain(epochs=5, lr=0.1))\n"
        "def nothing():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["unlearn", "cup", "--problem", "mine:problem", "--classes", "0", "--out", "out"]) == 0
    assert main(["unlearn", "cup", "--problem", "mine:nothing", "--classes", "0", "--out", "out2"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trace", "--classes", "3", "--pick", "nonsense"], "for example"),
        (["trace", "--classes", "3", "--best", "XX"], "unknown score"),
        (["trace", "retrain", "--classes", "3"], "no knob"),
        (["trace", "ws", "--classes", "3", "--quick"], "needs the dial"),
        (["trace", "--classes", "3", "--quick", "--values", "0.5"], "chooses its own points"),
        (["trace", "--classes", "3", "--points", "5"], "--points needs --quick"),
        (["reproduce", "toy", "--seeds", "0"], "give 1 or more"),
        (["unlearn", "--classes", "4-2"], "write 3, or 3,5, or 0-4"),
        (["unlearn", "--config", "FILE", "--classes", "3"], "not text in UTF-8"),
        (["unlearn", "--classes", "3", "--out", "FILE"], "is a file"),
        (["trace", "--classes", "3", "--out", "FILE"], "is a file"),
        (["demo", "--out", "FILE"], "is a file"),
        (["reproduce", "vae", "--out", "FILE"], "is a file"),
        (["reproduce", "vae", "--values", "0.5", "1.5"], "gamma"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_trained(words, message, tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"\xff\xfe\x00bad")
    assert main([str(tmp_path / "file") if word == "FILE" else word for word in words]) == 1
    assert message in error_of(capsys)


def test_lists_and_unknown_methods_in_a_file(tmp_path, capsys):
    file = tmp_path / "options.yaml"
    file.write_text("classes: [3, 5]\n")
    assert parse(["unlearn", "--config", str(file)]).classes == "3,5"
    file.write_text("values: [0.1, 0.9]\n")
    assert parse(["trace", "--config", str(file)]).values == (0.1, 0.9)
    file.write_text("method: nosuch\n")
    assert main(["unlearn", "--config", str(file)]) == 1
    assert f"Available: {', '.join(list_methods())}" in error_of(capsys)


def test_a_folder_called_like_a_method_is_no_method():
    chosen = parse(["unlearn", "--classes", "1", "--out", "ws"])
    assert (chosen.method.name, str(chosen.out)) == ("cup", "ws")
    chosen = parse(["unlearn", "--protocol", "paper", "--out", "ws", "--json", "ga", "--lr", "0.5"])
    assert (chosen.method.name, chosen.method.objective, str(chosen.out)) == ("ga", "negative_ce", "ws")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["unlearn", "--help"], "imtl_g, iu, l1_sparse"),
        (["reproduce", "--help"], "The paper's Figure 1"),
        (["reproduce", "--help"], "The paper's VAE figure"),
    ],
)
def test_help_says_what_can_be_chosen(words, told, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert told in " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["unlearnn"], "'unlearn'"),
        (["unlearn", "cupp", "--classes", "3"], "'cup'"),
        (["trace", "cupp"], "'cup'"),
        (["unlearn", "cup", "--gama", "0.5"], "'--gamma'"),
        (["unlearn", "--gama=0.5"], "'--gamma'"),
        (["sweep", "digits", "--job", "2"], "'--jobs'"),
        (["reproduce", "dppm"], "'ddpm'"),
        (["data", "gett"], "'get'"),
    ],
)
def test_a_typo_gets_a_suggestion(words, suggestion, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert f"did you mean {suggestion}?" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["methods", "cupp"], "'cup'"),
        (["sweep", "digts"], "'digits'"),
        (["data", "get", "cifar"], "'cifar10'"),
        (["unlearn", "--problem", "digit", "--classes", "3"], "'digits'"),
        (["unlearn", "--classes", "3", "--until", "UAA>=95"], "'UA'"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(words, suggestion, capsys):
    assert main(words) == 1
    error = capsys.readouterr().err
    assert f"did you mean {suggestion}?" in error
    assert error.count("\n") == 1


def test_a_pattern_that_matches_nothing_is_an_error(capsys):
    assert main(["methods", "scrb"]) == 1
    assert "unknown method 'scrb'" in capsys.readouterr().err


@pytest.mark.slow
def test_trace_draws_and_picks(original, tmp_path, capsys, monkeypatch):
    from safetensors.torch import load_file

    from gradpivot.methods.cup import CUP

    ran, unlearn = [], CUP.unlearn
    monkeypatch.setattr(CUP, "unlearn", lambda self, *given: ran.append(self.gamma) or unlearn(self, *given))
    out = tmp_path / "trace"
    words = [
        "trace",
        "cup",
        *QUICK,
        "--weights",
        str(original),
        "--out",
        str(out),
        "--values",
        "0",
        "0.9",
        "--no-reference",
    ]
    assert main([*words, "--pick", "UA>=0", "--best", "UA"]) == 0
    assert "gamma=0.9" in capsys.readouterr().out
    # Once for each value: the picked model is kept from then.
    assert ran == [0, 0.9]
    kept = [path.read_bytes() for path in (out / "models").glob("*.safetensors")]
    assert (out / "model.safetensors").read_bytes() in kept
    before, after = load_file(original), load_file(out / "model.safetensors")
    assert any(bool((before[name] != tensor).any()) for name, tensor in after.items())
    assert {"results.json", "results.csv", "report.html", "frontier.png", "model.safetensors"} <= {
        p.name for p in out.iterdir()
    }
    assert main([*words, "--pick", "UA>=0", "--best", "UA", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knob"] == 0.9
    assert ran == [0, 0.9]
    times = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")}
    assert len(times) == 2
    assert main([*words, "--pick", "UA>=99.9, RA>=100"]) == 1
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")} == times
    assert "no point of CUP meets" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["report", str(out / "results.json"), "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "report.html").exists()


@pytest.mark.slow
def test_a_quick_trace_recommends(original, tmp_path, capsys):
    out = tmp_path / "quick"
    words = ["trace", "cup", *QUICK, "--weights", str(original), "--out", str(out), "--no-reference", "--quick"]
    assert main([*words, "--points", "4"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Recommended: CUP(" in told
    assert "That is closest to what a retrained model should score" in told
    assert "runs with scoring; a sweep of" in told
    results = json.loads((out / "results.json").read_text())
    assert 2 <= len(results["frontiers"][0]["points"]) <= 4
    quick = results["provenance"]["quick"]
    assert quick["cost_in_plain_runs"] > 1
    assert quick["recommended"]["expected"]["ua"] == 1
    assert {"report.html", "model.safetensors"} <= {p.name for p in out.iterdir()}


@pytest.mark.slow
def test_reproduce_vae_writes_figure_table_and_numbers_and_goes_on_from_them(tmp_path, capsys, monkeypatch):
    from gradpivot import experiments

    small = experiments.vae_recipe("small")
    quick = dataclasses.replace(
        small,
        training=dataclasses.replace(small.training, epochs=2),
        recogniser_training=dataclasses.replace(small.recogniser_training, epochs=2),
        recogniser_least=0.3,
        method=dataclasses.replace(small.method, epochs=1),
    )
    monkeypatch.setattr(experiments, "vae_recipe", lambda preset, protocol: quick)
    words = ["reproduce", "vae", "--preset", "small", "--values", "0.5", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "results.json").read_text())
    assert [row["name"] for row in told["models"]] == ["Original", "γ = 0.5", "Retrained"]
    assert (tmp_path / "latent-map.png").stat().st_size > 20_000
    assert (tmp_path / "latent-map.pdf").read_bytes().startswith(b"%PDF")
    models = {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*.safetensors")}
    assert len(models) == 4
    assert main(words) == 0
    assert "| γ = 0.5 |" in (tmp_path / "table.md").read_text()
    assert "map classified as 3, %" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*.safetensors")} == models


@pytest.mark.slow
def test_reproduce_toy_writes_the_figure_and_the_numbers(tmp_path, capsys):
    assert main(["reproduce", "toy", "--out", str(tmp_path), "--seeds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "results.json").read_text())
    assert list(told["accuracy"]) == ["Original", "Gradient ascent", "Weighted scalarisation", "CUP, γ = 0.7"]
    assert (tmp_path / "toy.png").stat().st_size > 50_000
    assert (tmp_path / "toy.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_retrain_takes_the_problems_own_recipe(tmp_path):
    words = ["unlearn", "retrain", "--problem", "toy", "--classes", "2", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["optimizer"], config["epochs"]) == ("adam", 100)


SHORT_DEMO = """
import sys
from gradpivot.cli import main
from gradpivot.experiments.problems import digits
whole = digits.demo_series()
digits.demo_series = lambda: {name: methods[::5] for name, methods in whole.items()}
raise SystemExit(main(["demo", "--out", sys.argv[1]]))
"""
"""Three of the eleven settings of each series."""


def interrupted_demo(command: list[str], out: Path, runs: int, how: signal.Signals) -> tuple[int, str]:
    """Start the demo, send a signal once so many runs are recorded: status, message."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=SINGLE_THREAD)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(out.glob("runs/*/*.json"))) < runs:
        time.sleep(0.05)
    process.send_signal(how)
    _, message = process.communicate(timeout=60)
    assert len(list(out.glob("runs/*/*.json"))) >= runs
    assert not (out / "results.json").exists()
    return process.returncode, message


@pytest.mark.slow
@pytest.mark.numeric
def test_an_interrupted_demo_continues_where_it_was(tmp_path):
    """Ctrl-C is one line; kill -9 loses at most the run in flight; nothing that was recorded is run again."""
    out = tmp_path / "demo"
    command = [sys.executable, "-c", SHORT_DEMO, str(out)]
    status, message = interrupted_demo(command, out, 3, signal.SIGINT)
    assert status == 130
    *progress, last = message.splitlines()
    assert all(" left" in line for line in progress)
    assert last.startswith("gradpivot: interrupted")
    assert "Run the same command to continue" in message
    first = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")}
    status, _ = interrupted_demo(command, out, len(first) + 1, signal.SIGKILL)
    assert status == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*.json")}
    assert first.items() <= done.items()
    subprocess.run(command, check=True, env=SINGLE_THREAD, capture_output=True)
    results = json.loads((out / "results.json").read_text())
    assert [f["name"] for f in results["frontiers"]] == ["CUP", "WS", "GA", "CUP as printed"]
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    dial = results["frontiers"][0]["points"]
    forgotten = [point["scores"]["ua"] for point in dial]
    assert forgotten == sorted(forgotten)
    assert forgotten[0] <= 0.05
    first = next(point for point in dial if point["scores"]["ua"] >= 0.95)
    assert first["scores"]["ra"] >= 0.97
    assert (out / "report.html").stat().st_size > 1_000_000


def test_a_trace_leaves_the_folder_of_a_finished_run_alone(original, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.json").write_text("{}")
    words = ["--classes", "3", "--values", "0.5", "--weights", str(original), "--out", str(tmp_path / "run")]
    assert main(["trace", "cup", *words]) == 1
    assert "holds a finished run" in error_of(capsys)
