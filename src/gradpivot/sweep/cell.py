"""A cell: the full description of one run of a sweep, identified by its hash. No torch."""

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
    """Everything besides the recipe that a sweep's results depend on; all of it enters every key.

    Attributes:
        problem: The problem as given: a built-in name, or ``module:function``.
        name: The problem's own name.
        data: Digest of the data.
        model: Digest of the model's structure and the task's name, not of the user's code.
        training: Settings of the training recipe for original and reference.
        versions: Versions of gradpivot, its source, torch, NumPy and scikit-learn.
        threads: Threads per run.
        device: Device of each run.
        original: Digest of the problem's pretrained weights; None if the original is trained here.
        retain_scored: Number of retain samples used for RA; None for all.
        judging: How a generator's samples are judged, with the key of the classifier; None for other models.
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
        """Key of the classifier that judges a generator's samples."""
        return None if self.judging is None else str(self.judging["classifier_key"])

    @cached_property
    def key(self) -> str:
        """Hash of the setting; runs with different settings do not belong in one table."""
        return digest_of(asdict(self))

    def original_key(self, seed: int, target: Mapping[str, Any] | None = None) -> str:
        """Key of the original model; it does not depend on the forget set or the scoring.

        A pretrained original is shared by all seeds. The shadow model of an audit's world depends on the world's
        training data and is always trained.

        Args:
            seed: Seed of the training.
            target: The cell's forget set; only that of a world matters.
        """
        scoring = {"retain_scored", "judging"}
        described = {name: value for name, value in asdict(self).items() if name not in scoring}
        if target is not None and "world" in target:
            return digest_of({"original": described | {"original": None}, "seed": seed, "target": dict(target)})
        return digest_of({"original": described, "seed": seed if self.original is None else None})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Attributes:
        setting: Problem, versions, threads.
        target: Forget set: ``{"kind": "class", "classes": [3]}``, ``{"kind": "random", "fraction": 0.1}`` or
            ``{"kind": "index", "indices": [0, 7]}``. With the keys ``world`` and ``worlds_seed`` it is that world of an
            audit (:func:`gradpivot.data.world_split`); a random subset then has its own ``seed``. With
            ``already_forgotten`` these training samples belong to no set.
        seed: Seed of the original, the random subset, the reference and the run.
        role: The original, the retrained reference, or a run of a method.
        protocol: Empty for the original and the reference.
        series: The series it belongs to.
        method: Full settings from ``Method.to_dict()``; empty for the original.
        source: Digest of a third-party method's source; None for built-in methods.
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
        """Hash of everything that determines the run's results and its place in tables."""
        return digest_of(asdict(self))

    @cached_property
    def original_key(self) -> str:
        """Key of the original model."""
        return self.setting.original_key(self.seed, self.target)

    @property
    def world(self) -> int | None:
        """Number of the audit's world, or None."""
        return self.target.get("world")

    @property
    def forget(self) -> str:
        """The forget set in readable form."""
        suffix = "" if self.world is None else f" (world {self.world})"
        if self.target["kind"] == "class":
            return ",".join(map(str, self.target["classes"])) + suffix
        if self.target["kind"] == "index":
            return f"{len(self.target['indices'])} records{suffix}"
        return f"{100 * self.target['fraction']:g} %{suffix}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**values, "setting": Setting(**values["setting"])})


def cells_of(recipe: Recipe, setting: Setting) -> list[Cell]:
    """All cells of a recipe in execution order: seed by seed, references before runs.

    Raises:
        GradPivotError: If two cells are identical, which would count twice in a table.
    """
    cells: dict[str, Cell] = {}
    for cell in _cells(recipe, setting):
        if cell.key in cells:
            raise GradPivotError(
                f"the recipe {recipe.name} has {cell.series} with {dict(cell.method)} twice; remove one"
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
    """20 hexadecimal digits: a million runs collide with probability 10⁻¹²."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:20]
