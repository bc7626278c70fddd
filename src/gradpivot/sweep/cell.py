"""A cell: the full description of one run of a sweep. Its hash is its key. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.experiments import Recipe
from gradpivot.results import Role
from gradpivot.runtime import foreign_source

__all__ = ["Cell", "Setting", "cells_of", "digest_of"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a sweep's numbers depend on besides the recipe; all of it is in every key.

    Attributes:
        problem: The problem as it was asked for: a built-in name, or ``module:function``.
        name: What the problem calls itself.
        data: The digest of its data.
        model: The digest of its model's structure and its task's name; what they compute is the user's to keep.
        training: The recipe of the original and the reference, as settings.
        versions: Of gradpivot, its source, torch, NumPy and scikit-learn.
        threads: Threads of each run.
        device: What each run computes on.
        original: The digest of the original's weights where the problem brings them; None if it is trained here.
        retain_scored: How many retain samples RA is taken on; None for all.
        judging: How samples of a generator are judged, and the key of the classifier that does; None for a model that
            predicts.
    """

    problem: str
    name: str
    data: str
    model: str
    training: Mapping[str, Any]
    versions: Mapping[str, str | None]
    threads: int
    device: str
    original: str | None = None
    retain_scored: int | None = None
    judging: Mapping[str, Any] | None = None

    @property
    def judge_key(self) -> str | None:
        """Which model judges the samples of a generator."""
        return None if self.judging is None else str(self.judging["classifier_key"])

    @cached_property
    def key(self) -> str:
        """The setting's identity: runs of different ones do not belong into one table."""
        return digest_of(asdict(self))

    def original_key(self, seed: int) -> str:
        """Which original model: everything but what is forgotten, and how that is scored.

        One that the problem brings is that of all seeds.
        """
        scoring = {"retain_scored", "judging"}
        described = {name: value for name, value in asdict(self).items() if name not in scoring}
        return digest_of({"original": described, "seed": seed if self.original is None else None})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Attributes:
        setting: Problem, versions, threads.
        target: What is forgotten: ``{"kind": "class", "classes": [3]}`` or ``{"kind": "random", "fraction": 0.1}``.
        seed: Of the original, the subset, the reference and the run.
        role: The original scored as it is, the retrained reference, or a method's run.
        protocol: Empty for the original and the reference.
        series: The set it belongs to.
        method: The full settings, as ``Method.to_dict()`` gives them; empty for the original.
        source: The digest of a method's source that is somebody else's; None for ours.
    """

    setting: Setting
    target: Mapping[str, Any]
    seed: int
    role: Role
    protocol: str = ""
    series: str
    method: Mapping[str, Any]
    source: str | None = None

    @cached_property
    def key(self) -> str:
        """The run's identity: the hash of everything that decides its numbers, and of its place in the tables."""
        return digest_of(asdict(self))

    @cached_property
    def original_key(self) -> str:
        """Which original model it starts from."""
        return self.setting.original_key(self.seed)

    @property
    def forget(self) -> str:
        """What is forgotten, for people."""
        if self.target["kind"] == "class":
            return ",".join(map(str, self.target["classes"]))
        return f"{100 * self.target['fraction']:g} %"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description, for workers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Read back what :meth:`to_dict` wrote."""
        return cls(**{**values, "setting": Setting(**values["setting"])})


def cells_of(recipe: Recipe, setting: Setting) -> list[Cell]:
    """Every run of a recipe, in the order it is done: whole seeds first, references before runs.

    Raises:
        GradPivotError: if two runs of it are the same, which would count twice in a table.
    """
    cells: dict[str, Cell] = {}
    for cell in _cells(recipe, setting):
        if cell.key in cells:
            raise GradPivotError(
                f"the recipe {recipe.name} asks twice for {cell.series} with {dict(cell.method)}; take one out"
            )
        cells[cell.key] = cell
    return list(cells.values())


def _cells(recipe: Recipe, setting: Setting) -> Iterator[Cell]:
    targets = [target for forgetting in recipe.forget for target in forgetting.targets]
    for seed in range(recipe.seeds):
        for target in targets:
            here: dict[str, Any] = {"setting": setting, "target": target, "seed": seed}
            yield Cell(**here, role="original", series="Original", method={})
            if recipe.reference == "retrain":
                yield Cell(**here, role="retrained", series="Retrain", method=setting.training)
        for target in targets:
            here = {"setting": setting, "target": target, "seed": seed}
            for series in recipe.series:
                here |= {"role": "run", "protocol": series.protocol, "series": series.name}
                for method in series.methods:
                    yield Cell(**here, method=method.to_dict(), source=foreign_source(type(method)))


def digest_of(described: Any) -> str:
    """20 hexadecimal digits: among a million runs two agree by chance once in 10¹² sweeps."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:20]
