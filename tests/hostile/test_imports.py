"""Nothing is imported from the current folder but the modules that the user named, and showing a file imports none.

Each row of the tables is a command in a folder of traps: files with the names of packages that the commands import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAPS = ("matplotlib", "numpy", "ray", "rich", "safetensors", "sklearn", "timm", "torch", "torchvision", "tyro", "yaml")
"""Packages, installed or not."""
OWN = """
from dataclasses import dataclass
from pathlib import Path
import sibling
from gradpivot.experiments import find_problem
from gradpivot.methods import GA
from gradpivot.tasks import Objective, register_objective

Path(__file__).with_name("ran-own").touch()
register_objective(Objective("mine", lambda logits, y: logits.mean(), None))

@dataclass(frozen=True, kw_only=True)
class Mine(GA):
    '''Mine.'''

def problem():
    import late_sibling
    return find_problem("toy")
"""
RECIPE = """
schema: gradpivot.recipe/1
problem: {problem}
forget: {{classes: 2}}
reference: none
protocols: {{clean: {{series: {{A: {series}}}}}}}
"""
RECIPES = {
    "mine.yaml": ("own:problem", "{method: 'own:Mine', epochs: 1}"),
    "objective.yaml": ("own:problem", "{method: cup, objective: mine, epochs: 1}"),
    "plain.yaml": ("own:problem", "{method: cup, epochs: 1}"),
    "missing.yaml": ("no_such_module:problem", "{method: cup, objective: mine}"),
}
TOY = ["--classes", "2", "--epochs", "1", "--out", "run"]

CONSOLE = ["-P", "-c", "import sys; from gradpivot.cli import main; sys.exit(main())"]
"""What the installed command ``gradpivot`` does."""
MODULE = ["-m", "gradpivot"]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    trap = "from pathlib import Path\nPath(__file__).with_name('ran-' + __name__).touch()\n"
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text(trap)
    (tmp_path / "own.py").write_text(OWN)
    for name in ("sibling", "late_sibling"):
        (tmp_path / f"{name}.py").touch()
    for name, (problem, series) in RECIPES.items():
        (tmp_path / name).write_text(RECIPE.format(problem=problem, series=series))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(start: list[str], words: list[str]) -> subprocess.CompletedProcess[str]:
    # As the tests find gradpivot; a relative entry would be the current folder.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, *start, *words], env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def executed(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "words", "ran", "said"),
    [
        # What is installed is installed.
        (MODULE, ["unlearn", "cup", "--problem", "toy", *TOY], [], "after RA"),
        # A recipe that is run, in worker processes, with what its module imports.
        (CONSOLE, ["sweep", "objective.yaml", "--store", "store", "--jobs", "1"], ["own"], "2 of 2 runs"),
    ],
    ids=["built in", "sweep"],
)
def test_only_what_was_typed_is_executed(place, start, words, ran, said):
    done = run(start, words)
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())
    assert executed(place) == ran


def here(words: list[str], capsys) -> tuple[int, str, str]:
    from gradpivot.cli import main

    before = list(sys.path)
    status = main(words)
    assert sys.path == before
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["recipes", "plain.yaml"], 0, "1 runs: 1 seed"),
        (["recipes", "plain.yaml", "--json"], 0, '"problem": "own:problem"'),
        (["recipes", "mine.yaml"], 0, "Not checked: recipe mine.yaml: protocol clean, A: own:Mine is imported only"),
        (["recipes", "mine.yaml", "--json"], 1, "own:Mine is imported only when the recipe runs"),
        (["recipes", "objective.yaml"], 0, "own:problem may register it"),
        (["recipes", "missing.yaml"], 0, "Not checked"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, list) else None,
)  # fmt: skip
def test_showing_executes_nothing(place, capsys, words, status, said):
    found, out, err = here(words, capsys)
    assert (found, executed(place)) == (status, [])
    assert said in " ".join((out + err).split())


def test_looking_at_a_run_of_ones_own_method_executes_nothing(place):
    from gradpivot.cli import main
    from gradpivot.runs import read_run

    assert main(["unlearn", "ga", "--problem", "toy", *TOY]) == 0
    metrics = json.loads((place / "run" / "metrics.json").read_text())
    metrics["provenance"]["method"]["method"] = "own:Mine"
    (place / "run" / "metrics.json").write_text(json.dumps(metrics))
    assert read_run(place / "run").frontiers[0].knob is None
    assert executed(place) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "missing.yaml", "--store", "store"],
         "recipe missing.yaml: cannot load the problem 'no_such_module:problem': no module named 'no_such_module'"),
        (["unlearn", "cup", "--problem", "no_such_module:problem", "--objective", "mine", "--classes", "2"],
         "cannot load the problem 'no_such_module:problem': no module named 'no_such_module'"),
        (["unlearn", "no_such_module:Mine", "--classes", "2"], "no module named 'no_such_module'"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_exist_is_named(place, capsys, words, said):
    status, out, err = here(words, capsys)
    assert (status, out, executed(place)) == (1, "", [])
    assert said in err
    assert err.count("\n") == 1
    assert not (place / "store").exists()
