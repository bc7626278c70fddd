"""Find attacks: the files of ``attacks/``, then installed entry points of the group ``gradpivot.attacks``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import gradpivot.auditing.attacks
from gradpivot.auditing.attack import LEVELS, Attack
from gradpivot.errors import GradPivotError
from gradpivot.runtime import load_entry_point

__all__ = ["all_attacks", "attacks_up_to"]

ATTACK_ENTRY_POINTS = "gradpivot.attacks"


@cache
def all_attacks() -> tuple[Attack, ...]:
    """All attacks, cheapest level first.

    Raises:
        GradPivotError: If two attacks have the same name.
    """
    found: dict[str, Attack] = {}
    for attack in _loaded():
        if found.setdefault(attack.name, attack) is not attack:
            raise GradPivotError(f"there are two attacks named {attack.name!r}; rename yours")
    return tuple(sorted(found.values(), key=lambda attack: LEVELS.index(attack.level)))


def attacks_up_to(level: str) -> tuple[Attack, ...]:
    """The attacks of a level and of all cheaper ones."""
    return tuple(attack for attack in all_attacks() if LEVELS.index(attack.level) <= LEVELS.index(level))


def _loaded() -> Iterator[Attack]:
    for module in pkgutil.iter_modules(gradpivot.auditing.attacks.__path__):
        yield from _attacks_in(importlib.import_module(f"gradpivot.auditing.attacks.{module.name}"))
    for entry in entry_points(group=ATTACK_ENTRY_POINTS):
        yield from _attacks_in(load_entry_point(entry))


def _attacks_in(source: Any) -> Iterator[Attack]:
    """An attack, or all attacks of a module."""
    for found in [source] if isinstance(source, Attack) else vars(source).values():
        if isinstance(found, Attack):
            yield found
