"""The commands sweep, recipes and store, in this process; tests/sweep kills real ones."""

from __future__ import annotations

import json
import signal

import pytest

from gradpivot.cli import main
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.parser import parse
from gradpivot.cli.sweeping import asked_for
from gradpivot.experiments.recipes.reading import load_recipe
from gradpivot.sweep.engines import local


@pytest.fixture
def sweep(lab, monkeypatch):
    """The sweep command with its jobs run in this process."""
    monkeypatch.setattr(local, "LocalEngine", lambda jobs, threads, log: lab.Inline())
    return lambda *words: main(["sweep", str(lab.path), "--store", str(lab.store_folder), *words])


def error_of(capsys) -> str:
    message = capsys.readouterr().err
    assert message.startswith("gradpivot: ")
    assert message.count("\n") == 1
    return message


def test_a_sweep_says_how_it_ended_and_a_second_one_too(lab, sweep, capsys):
    assert sweep() == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{lab.CELLS} of {lab.CELLS} runs are in" in told
    assert "0 diverged, 0 failed" in told
    assert "Workers were busy" in told
    assert sweep("--json") == 0
    state = json.loads(capsys.readouterr().out)["state"]
    assert (state["done"], state["before"]) == (lab.CELLS, lab.CELLS)


def test_a_model_that_fails_is_told_and_tried_again(lab, sweep, capsys):
    trouble = lab.say("raise")
    assert sweep() == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"{lab.CELLS - 3} of {lab.CELLS} runs are in" in told
    assert told.count("RuntimeError: my loss is broken") == 3
    assert "3 failed; the same command retries them" in told
    # What failed is of class 1: a sweep of class 0 has nothing to do with it.
    assert sweep("--classes", "0") == 0
    assert "failed:" not in capsys.readouterr().out
    trouble.unlink()
    assert sweep() == 0


def test_damaged_files_are_named(lab, sweep, capsys):
    sweep()
    record = next(lab.store_folder.glob("runs/*/*.json"))
    record.write_text("{")
    capsys.readouterr()
    assert main(["store", "check", str(lab.store_folder)]) == 1
    assert f"1 of {lab.CELLS + 1} files are damaged: {record.name}" in error_of(capsys)
    assert sweep() == 0
    assert f"Damaged and repeated: {record.name}" in capsys.readouterr().out
    assert main(["store", "check", str(lab.store_folder)]) == 0
    assert f"All {lab.CELLS + 1} files are intact" in capsys.readouterr().out


def test_options_choose_a_part(lab, sweep, tmp_path):
    words = ["sweep", str(lab.path), "--classes", "2", "--fraction", "0.2", "--methods", "GA", "--seeds", "3"]
    recipe = asked_for(parse(words))
    assert [series.name for series in recipe.series] == ["GA"]
    assert recipe.seeds == 3
    assert [t for f in recipe.forget for t in f.targets] == [
        {"kind": "class", "classes": [2]},
        {"kind": "random", "fraction": 0.2},
    ]
    file = tmp_path / "options.yaml"
    file.write_text("seeds: 4\nmethods: [cup, ga]\njobs: 3\n")
    chosen = parse(["sweep", str(lab.path), "--config", str(file), "--jobs", "1"])
    assert (chosen.seeds, chosen.methods, chosen.jobs) == (4, "cup,ga", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "cpu"], "did you mean 'cup'"),
        (["--protocols", "paper"], "no protocol 'paper'"),
        (["--classes", "x"], "write 3, or 3,5, or 0-4"),
        (["--fraction", "7"], "between 0 and 1"),
        (["--seeds", "0"], "give 1 or more"),
        (["--threads", "0"], "--threads is 0"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "there is no Ray cluster at '127.0.0.1:1'"),
    ],
)
def test_what_people_get_wrong_is_one_line(lab, sweep, capsys, words, message):
    pytest.importorskip("ray") if "ray" in words else None
    assert sweep(*words) == 1
    assert message in error_of(capsys)
    assert lab.pids() == []


def test_a_store_that_is_a_file_and_a_recipe_that_is_none(lab, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["sweep", str(lab.path), "--store", str(tmp_path / "file")]) == 1
    assert "is a file; name a folder" in error_of(capsys)
    assert main(["sweep", "nosuch", "--store", str(tmp_path / "s")]) == 1
    assert "there is no recipe 'nosuch'" in error_of(capsys)
    for words in (["check"], ["export"]):
        assert main(["store", *words, str(tmp_path / "none"), *(["x"] if words == ["export"] else [])]) == 1
        assert "there is no store in" in error_of(capsys)


def test_stores_are_exported_and_merged(lab, sweep, tmp_path, capsys):
    sweep("--methods", "cup")
    capsys.readouterr()
    file, other = tmp_path / "runs.jsonl", tmp_path / "other"
    assert main(["store", "export", str(lab.store_folder), str(file)]) == 0
    assert "8 runs are in" in capsys.readouterr().out
    assert main(["store", "import", str(other), str(file)]) == 0
    assert "8 runs imported, 0 were already there" in capsys.readouterr().out
    assert main(["sweep", str(lab.path), "--store", str(other)]) == 0
    assert "(8 from before)" in " ".join(capsys.readouterr().out.split())
    file.write_text("nonsense\n")
    assert main(["store", "import", str(other), str(file)]) == 1
    assert "line 1 is not an exported run" in error_of(capsys)


@pytest.mark.slow
def test_recipes_are_checked_and_shown(lab, capsys):
    assert main(["recipes", str(lab.path)]) == 0
    told = capsys.readouterr().out
    assert f"6 runs: 1 seed, classes 0, 1 one at a time; {lab.CELLS} with originals and references" in told
    assert main(["recipes", str(lab.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 6
    assert main(["recipes"]) == 0
    lab.path.write_text("schema: gradpivot.recipe/1\n")
    assert main(["recipes", str(lab.path)]) == 1
    assert "'problem' is missing" in error_of(capsys)


def test_sigterm_is_ctrl_c_inside_and_itself_again_outside():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminating():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_reproduce_is_a_sweep_and_its_comparison(lab, sweep, tmp_path, capsys, monkeypatch):
    """The experiment's own recipe takes hours; the lab's takes its place."""
    asked = []

    def load(name):
        asked.append(name)
        return load_recipe(lab.path)

    monkeypatch.setattr("gradpivot.cli.sweeping.load_recipe", load)
    out = tmp_path / "out"
    words = ["reproduce", "cifar10-class", "--classes", "1", "--methods", "cup", "--out", str(out)]
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "4 of 4 runs are in" in told
    assert {"standings.json", "standings.html", "store"} <= {path.name for path in out.iterdir()}
    assert main([*words, "--preset", "full", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"].startswith("gradpivot.standings")
    assert main(["reproduce", "ddpm", *words[2:], "--json"]) == 0
    assert asked == ["cifar10-pretrained", "cifar10-class", "mnist-ddpm"]


def test_without_the_data_reproduce_says_how_to_get_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path / "nothing"))
    assert main(["reproduce", "cifar10-class", "--out", str(tmp_path / "out")]) == 1
    assert "run 'gradpivot data get" in error_of(capsys)
