"""Provenance of a result: versions, machine class, threads, date. No host name, path or user."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Set
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gradpivot import __version__

__all__ = ["code_digest", "environment", "foreign_source", "source_digest"]

_PACKAGES = (
    "torch", "numpy", "scikit-learn", "diffusers", "moocore", "safetensors", "torchjd", "quadprog", "cvxpy",
)  # fmt: skip
# Folders and files, at any level, that only read, display, download or schedule. All others compute numbers.
# Data has its own digest.
NOT_HASHED = frozenset((
    "cli", "results", "report", "sweep", "testing",
    "atomic", "locking", "parsing", "processes", "progress", "provenance", "folder", "download", "pickled", "png",
))  # fmt: skip
ALWAYS_HASHED = frozenset(("work",))
"""Files in those folders that do compute numbers."""
_OWN_PATH = re.compile(r"\bgradpivot\.[\w.]*")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Everything outside the settings that can change a number."""
    import torch

    return {
        "gradpivot": __version__,
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def code_digest() -> str:
    """Hash the source that computes numbers (12 hex digits); the version alone does not change between releases."""
    import gradpivot

    return source_digest(Path(gradpivot.__file__).parent)


def source_digest(package: Path) -> str:
    """Hash the syntax trees of the modules of ``package`` that compute numbers (12 hex digits).

    Moving a file or editing comments, docstrings, error messages, layout or import order does not change the hash.
    Renaming a function does: an unnecessary rerun is better than a stale result.
    """
    trees = [ast.parse(path.read_bytes()) for path in package.rglob("*.py") if computes(path, package)]
    defined = Counter(name for tree in trees for name in _defined(tree))
    ambiguous = {name for name, count in defined.items() if count > 1}
    digests = sorted(hashlib.sha256(_plain(tree, ambiguous).encode()).digest() for tree in trees)
    return hashlib.sha256(b"".join(digests)).hexdigest()[:12]


def foreign_source(what: Any) -> str | None:
    """Hash the name and source file of a third-party class or function (12 hex digits).

    Includes third-party base classes. None for gradpivot's own, which :func:`code_digest` covers.
    """
    kinds = what.__mro__ if isinstance(what, type) else [what]
    foreign = [
        kind for kind in kinds if kind.__module__.partition(".")[0] not in ("gradpivot", "builtins", "abc", "typing")
    ]
    if not foreign:
        return None
    described = [(kind.__qualname__, _source_of(kind)) for kind in foreign]
    return hashlib.sha256(repr(described).encode()).hexdigest()[:12]


def _source_of(kind: Any) -> str:
    """The syntax tree of its source file; empty if there is none, as in a notebook."""
    try:
        return _plain(ast.parse(Path(inspect.getfile(kind)).read_bytes()), frozenset())
    except (OSError, TypeError, SyntaxError):
        return ""


def computes(path: Path, package: Path) -> bool:
    """Whether a module computes numbers. An ``__init__`` without functions only exports names."""
    *folders, file = (part.lstrip("_") for part in path.relative_to(package).with_suffix("").parts)
    if path.stem.startswith("__") and "def " not in path.read_text(encoding="utf-8"):
        return False
    return file in ALWAYS_HASHED or NOT_HASHED.isdisjoint((*folders, file))


def _defined(tree: ast.Module) -> Iterator[str]:
    """The names that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _plain(node: object, ambiguous: Set[str]) -> str:
    """A syntax tree as text, the same in every Python version, without nodes that cannot change a number."""
    if isinstance(node, ast.AST):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = [part for part in node.exc.args if not _is_text(part)]
        fields = [
            f"{name}={_plain(value, ambiguous)}"
            for name, value in ast.iter_fields(node)
            if name != "ctx" and value not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        kept = [part for part in node if not _is_idle(part)]
        imports = {name for part in kept for name in _imported(part, ambiguous)}
        others = [part for part in kept if not isinstance(part, ast.Import | ast.ImportFrom)]
        return f"[{','.join((*sorted(imports), *(_plain(part, ambiguous) for part in others)))}]"
    return repr(_OWN_PATH.sub("gradpivot", node) if isinstance(node, str) else node)


def _is_idle(node: object) -> bool:
    """Whether a node is a docstring, ``...``, ``pass``, ``__all__`` or for type checkers only."""
    match node:
        case ast.Pass() | ast.Expr(ast.Constant()) | ast.Assign([ast.Name("__all__")]):
            return True
        case ast.If(ast.Name("TYPE_CHECKING"), _, []) | ast.ImportFrom("__future__" | "typing"):
            return True
    return False


def _imported(node: object, ambiguous: Set[str]) -> Iterator[str]:
    """The names an import binds. Imports from gradpivot omit the module unless two modules define the name."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return
    home = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        if f"{home}.".startswith("gradpivot."):
            source = home.rpartition(".")[2] if alias.name in ambiguous else "gradpivot"
        else:
            source = home
        yield f"import {source} {alias.name} {alias.asname}"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
