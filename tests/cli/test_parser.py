"""A method of the user's own on the command line, by its import path."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest

from gradpivot.cli import main
from gradpivot.cli.parser import parse
from gradpivot.methods import Method, list_methods
from gradpivot.tasks import objectives

OWN = '''
from dataclasses import dataclass
from gradpivot.methods import GA

@dataclass(frozen=True, kw_only=True)
class MyMethod(GA):
    """Mine.

    Attributes:
        my_setting: A number.
    """

    my_setting: int = 1
'''


@pytest.fixture
def path(tmp_path, monkeypatch) -> str:
    """The method's name, in a module where the user stands."""
    module = f"own_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    list_methods()
    monkeypatch.setattr(Method, "_registry", dict(Method._registry))
    return f"{module}:MyMethod"


@pytest.mark.parametrize("command", ["unlearn", "trace"])
def test_it_is_a_method_like_any_other(command, path, tmp_path):
    words = ["--my-setting", "3", "--classes", "3"]
    assert parse([command, path, *words]).method.my_setting == 3
    file = tmp_path / "options.yaml"
    file.write_text(f"method: {path}\nmy_setting: 3\nlr: 0.5\n")
    chosen = parse([command, "--config", str(file), "--classes", "3"])
    assert chosen.method.to_dict()["method"] == path
    assert (chosen.method.my_setting, chosen.method.lr) == (3, 0.5)
    assert parse([command, path, "--protocol", "paper", *words]).method.max_norm is None
    # The value of an option is not a method.
    assert parse([command, "--problem", path, *words[2:]]).method.name == "cup"


def test_an_objective_of_the_problems_module_is_known(path, monkeypatch):
    monkeypatch.setattr(objectives, "_OBJECTIVES", dict(objectives._OBJECTIVES))
    module = path.partition(":")[0]
    own = "from gradpivot.tasks import Objective, register_objective\n"
    own += "register_objective(Objective('mine', lambda logits, y: logits.mean(), None))\nproblem = None\n"
    Path(f"{module}.py").write_text(own)
    words = ["unlearn", "cup", "--objective", "mine", "--problem", f"{module}:problem"]
    assert parse(words).method.objective == "mine"


def test_it_is_listed(path, capsys):
    assert main(["methods", path, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["name"], told["title"], told["defaults"]["my_setting"]) == (path, "MyMethod", 1)


def test_it_runs_and_is_run_again(path, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["unlearn", path, "--problem", "toy", "--classes", "2", "--epochs", "1", "--out", str(out)]) == 0
    assert "MyMethod(" in capsys.readouterr().out
    assert main(["rerun", str(out)]) == 0


@pytest.mark.parametrize("words", [["unlearn"], ["trace", "--classes", "3"], ["methods"]])
def test_a_slip_gets_a_suggestion(words, path, capsys):
    assert main([*words, path[:-1]]) == 1
    told = capsys.readouterr().err
    assert told.endswith("has no attribute 'MyMetho'; did you mean 'MyMethod'?\n")
    assert told.count("\n") == 1
