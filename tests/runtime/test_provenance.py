"""The source digest changes with the computation and survives tidying."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import gradpivot
from gradpivot import WS
from gradpivot.runtime.provenance import (
    ALWAYS_HASHED,
    NOT_HASHED,
    code_digest,
    computes,
    environment,
    foreign_source,
    source_digest,
)

PACKAGE = Path(gradpivot.__file__).parent

STEP = '''"""A step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradpivot.errors import GradPivotError
from gradpivot.goal import degree

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["step"]

RATE = 0.1
"""Of learning."""


def step(weight: Tensor, gradient: Tensor) -> Tensor:
    """One step down."""
    # Downhill.
    if math.isnan(degree(gradient)):
        raise GradPivotError(f"{gradient} is no gradient")
    return weight - RATE * gradient
'''
GOAL = '''"""A goal."""

NEAR = 0.5


def degree(value):
    """How far."""
    return value / NEAR
'''
START = '"""The start."""\n\nNEAR = 0.25\n'


@pytest.fixture
def package(tmp_path) -> Path:
    """A package of four modules; the file of the errors is not needed for its digest."""
    for name, content in (("step", STEP), ("goal", GOAL), ("start", START)):
        (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "console.py").write_text("WIDTH = 80\n")
    return tmp_path


def move_goal_into_a_room(package: Path) -> None:
    (package / "dial").mkdir()
    (package / "goal.py").rename(package / "dial" / "_forgotten.py")
    (package / "dial" / "__init__.py").write_text("from gradpivot.dial._forgotten import degree\n")
    step = package / "step.py"
    # The import sorter puts a renamed module elsewhere.
    step.write_text(
        STEP.replace("from gradpivot.goal import degree\n", "").replace(
            "from gradpivot.errors", "from gradpivot.dial import degree\nfrom gradpivot.errors"
        )
    )


TIDY = {
    "a docstring": (STEP, '"""One step down."""', '"""Step\n\n    downhill."""'),
    "no docstring": (GOAL, '    """How far."""\n', ""),
    "what a constant is": (STEP, '"""Of learning."""', '"""The learning rate."""'),
    "a comment": (STEP, "    # Downhill.\n", ""),
    "layout": (STEP, "step(weight: Tensor, gradient: Tensor)", "step(\n    weight: Tensor, gradient: Tensor\n)"),
    "the words of an error": (STEP, "is no gradient", "is not a number; lower the learning rate"),
    "what is public": (STEP, '["step"]', '["RATE", "step"]'),
    "an import for the type checker": (STEP, "    from torch import Tensor", "    from torch import Tensor, nn"),
    "the order of imports": (STEP, "import math\nfrom typing import TYPE_CHECKING\n",
                             "from typing import TYPE_CHECKING\nimport math\n"),
}  # fmt: skip
CHANGES = {
    "a constant": (STEP, "0.1", "0.2"),
    "an operator": (STEP, "weight - RATE", "weight + RATE"),
    "a comparison": (STEP, "if math", "if not math"),
    "a constant in another module": (GOAL, "0.5", "0.25"),
    "a default": (GOAL, "degree(value)", "degree(value=1)"),
    "what is imported": (STEP, "import degree", "import start as degree"),
    "an imported module": (STEP, "import math", "import cmath as math"),
    "another exception": (STEP, "raise GradPivotError", "raise ValueError"),
    "a value that an exception carries": (STEP, "no gradient\")", "no gradient\", weight)"),
    "a text that is computed with": (GOAL, "return value / NEAR", "return 'value / NEAR'"),
}  # fmt: skip


def edit(package: Path, content: str, before: str, after: str) -> None:
    assert before in content
    file = package / ("step.py" if content is STEP else "goal.py")
    changed = content.replace(before, after)
    ast.parse(changed)
    file.write_text(changed)


@pytest.mark.parametrize("what", TIDY)
def test_tidying_keeps_the_digest(what, package):
    before = source_digest(package)
    edit(package, *TIDY[what])
    assert source_digest(package) == before


@pytest.mark.parametrize("what", CHANGES)
def test_changing_the_computation_changes_the_digest(what, package):
    before = source_digest(package)
    edit(package, *CHANGES[what])
    assert source_digest(package) != before


def test_a_moved_and_renamed_file_keeps_the_digest(package):
    before = source_digest(package)
    move_goal_into_a_room(package)
    assert source_digest(package) == before


def test_paths_of_our_own_modules_in_tables_keep_the_digest(package):
    table = package / "table.py"
    table.write_text('HOMES = {"net": "gradpivot.models.net:make"}\n')
    before = source_digest(package)
    table.write_text('HOMES = {"net": "gradpivot.nets.net:make"}\n')
    assert source_digest(package) == before
    table.write_text('HOMES = {"net": "gradpivot.nets.net:other"}\n')
    assert source_digest(package) != before


def test_a_name_that_two_modules_define_is_qualified(package):
    (package / "use.py").write_text("from gradpivot.goal import NEAR\n")
    before = source_digest(package)
    (package / "use.py").write_text("from gradpivot.start import NEAR\n")
    assert source_digest(package) != before


def test_modules_that_only_display_are_not_in_the_digest(package):
    before = source_digest(package)
    (package / "cli" / "console.py").write_text("WIDTH = 100\n")
    assert source_digest(package) == before
    (package / "width.py").write_text("WIDTH = 100\n")
    assert source_digest(package) != before


@pytest.mark.parametrize("name", sorted(NOT_HASHED | ALWAYS_HASHED))
def test_each_listed_name_is_exactly_one_folder_or_file(name):
    """A second file of that name would be left out (or counted) by accident."""
    named = [path for path in PACKAGE.rglob("*") if path.suffix in ("", ".py") and path.stem.lstrip("_") == name]
    found = [path for path in named if not set(path.parents) & set(named)]
    assert len(found) == 1, f"{name}: {found}; adapt the lists in provenance.py"


def test_an_init_counts_if_it_defines_something(package):
    before = source_digest(package)
    door = package / "cli" / "__init__.py"
    door.write_text("from gradpivot.cli.console import WIDTH\n")
    assert source_digest(package) == before
    (package / "room").mkdir()
    (package / "room" / "__init__.py").write_text("def find(name):\n    return name\n")
    assert source_digest(package) != before


def test_third_party_source_changes_its_digest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "somebody.py"

    def digest(content: str) -> str | None:
        file.write_text(content)
        sys.modules.pop("somebody", None)
        importlib.invalidate_caches()
        return foreign_source(importlib.import_module("somebody").Theirs)

    text = '"""Theirs."""\nfrom gradpivot import WS\nRATE = 1\nclass Theirs(WS):\n    pass\n'
    before = digest(text)
    assert digest(text.replace("Theirs.", "What they made.")) == before
    assert digest(text.replace("RATE = 1", "RATE = 2.5")) != before
    assert foreign_source(WS) is None


def test_computing_modules_are_in_the_digest():
    counted = {path.stem for path in PACKAGE.rglob("*.py") if computes(path, PACKAGE)}
    assert {"loop", "cup", "pivot", "evaluation", "membership", "work", "original", "augmentation"} <= counted
    assert code_digest() == source_digest(PACKAGE)


def test_environment_includes_diffusers():
    """Samples depend on diffusers' network and schedulers as much as on torch."""
    assert "diffusers" in environment()["packages"]
