"""The floor plan: tests mirror src, rooms have doors, the root stays small, a name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS = ROOT / "src/gradpivot", ROOT / "tests"
TEST_FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("file", [f for f in TEST_FILES if f.parts[0] not in ("repository", "hostile")], ids=str)
def test_a_test_file_stands_where_its_module_does(file):
    """``tests/a/test_b.py`` and ``tests/a/test_b_more.py`` test ``src/gradpivot/a/b.py`` (or ``_b.py``, or ``b/``)."""
    folder = PACKAGE / file.parent
    modules = {path.stem.lstrip("_") for path in folder.glob("*.py")} | {path.name for path in folder.glob("*/")}
    words = file.stem.removeprefix("test_").split("_")
    assert any("_".join(words[:count]) in modules for count in range(1, len(words) + 1))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_the_root_is_small():
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 23, sorted(entries)


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_other_rooms_are_entered_by_the_door(room):
    """From outside, only ``from gradpivot.room import name``: moving a file inside breaks nobody."""
    entered = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != room
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"gradpivot.{room}.")
    ]
    assert entered == []


@pytest.mark.parametrize("room", ROOMS)
def test_everything_that_a_door_offers_is_there(room):
    module = __import__(f"gradpivot.{room}", fromlist=["*"])
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def top_level() -> Iterator[tuple[str, ast.stmt]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            yield str(path.relative_to(PACKAGE)), node


def test_no_two_classes_have_one_name():
    found = defaultdict(list)
    for file, node in top_level():
        if isinstance(node, ast.ClassDef):
            found[node.name].append(file)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_no_constant_has_two_values():
    found = defaultdict(lambda: defaultdict(list))
    for file, node in top_level():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.isupper():
                found[name][ast.dump(node.value)].append(file)
    assert {name: [*values.values()] for name, values in found.items() if len(values) > 1} == {}
