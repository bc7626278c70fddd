"""Built-in problems: every function ``def my_data() -> Problem`` in this folder is the problem ``my-data``.

Third parties register theirs in the entry point group ``gradpivot.problems``: ``my-data = "my_package:my_data"``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

__all__ = ["list_problems", "problem_paths"]


def list_problems() -> list[str]:
    """Names of the built-in and installed problems."""
    return sorted(problem_paths())


@cache
def problem_paths() -> dict[str, str]:
    """Import path of each problem by name; built-in ones win. Imports nothing, because problems need torch."""
    installed = {entry.name: entry.value for entry in entry_points(group="gradpivot.problems")}
    return installed | dict(_built_in())


def _built_in() -> Iterator[tuple[str, str]]:
    for source in (file for folder in __path__ for file in sorted(Path(folder).glob("[!_]*.py"))):
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _returns_problem(node):
                yield node.name.replace("_", "-"), f"{__name__}.{source.stem}:{node.name}"


def _returns_problem(node: ast.FunctionDef) -> bool:
    return isinstance(node.returns, ast.Name) and node.returns.id == "Problem"
