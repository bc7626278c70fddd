"""Files and folders on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gradpivot.cli import options
from gradpivot.errors import GradPivotError

__all__ = ["refuse_empty_paths", "with_home"]


def refuse_empty_paths(words: Sequence[str]) -> None:
    """Raise for an empty file or folder, such as --out "$OUT" without OUT, which would mean the current folder.

    Raises:
        GradPivotError: If there is one; names the option.
    """
    flags = set(_path_flags())
    for before, word in pairwise(["", *words]):
        flag, equals, value = word.partition("=")
        if flag in flags and equals and not value:
            raise GradPivotError(f"{flag} is empty; give a path, or . for the current folder")
        if not word and (before in flags or not before.startswith("-")):
            name = before if before in flags else "an argument"
            raise GradPivotError(f"{name} is empty; give a path, or . for the current folder")


def with_home(chosen: Any) -> Any:
    """The options with ~ in files and folders replaced: shells don't do so in quotes or after an equals sign.

    Raises:
        GradPivotError: For the home of a user that does not exist.
    """
    values = {field.name: getattr(chosen, field.name) for field in dataclasses.fields(chosen)}
    if set(values) == {"chosen"}:
        # The subcommands of store, data and reproduce.
        return dataclasses.replace(chosen, chosen=with_home(values["chosen"]))
    changed = {name: _expanded(value) for name, value in values.items() if isinstance(value, Path | tuple)}
    return dataclasses.replace(chosen, **changed)


def _expanded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_expanded, value))
    if not isinstance(value, Path):
        return value
    try:
        return value.expanduser()
    except RuntimeError:
        raise GradPivotError(f"{value}: there is no home folder of {value.parts[0]}; write ./{value}") from None


def _path_flags() -> Iterator[str]:
    for kind in vars(options).values():
        if dataclasses.is_dataclass(kind):
            yield from (f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(kind) if "Path" in str(f.type))
