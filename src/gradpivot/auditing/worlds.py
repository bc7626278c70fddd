"""Shadow models of an audit: worlds in which each target was trained on with probability 1/2, run through the sweep.

In world k a shadow model is trained on the retain set and a random half of the targets, each method under audit then
forgets the targets inside, and a reference is trained on the retain set alone. Finished worlds stay in the store.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.data import ForgetSplit, world_split
from gradpivot.errors import GradPivotError
from gradpivot.experiments import filled, find_problem
from gradpivot.methods import Method, Retrain
from gradpivot.runtime import foreign_source
from gradpivot.sweep import (
    Cell,
    Engine,
    Resources,
    Setting,
    Store,
    Sweep,
    Watch,
    base_split,
    check_targets,
    setting_of,
    start_engine,
    train_ahead,
)
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.results import Record

__all__ = ["Worlds", "run_worlds", "target_of", "world_cells"]

_PROTOCOL = "audit"


@dataclass(frozen=True, kw_only=True, eq=False)
class Worlds:
    """Scaled margins of T targets in K worlds.

    Attributes:
        inside: Whether each target was in each world's training set, K×T.
        shadow: Margins of the shadow models, K×T.
        retrained: Margins of the models trained on the retain set alone, K×T.
        unlearned: Margins of the shadow models after unlearning, K×T; None without a method.
        indices: The targets' indices in the training data, T.
        method: Name of the method; empty without one.
        diverged: Number of worlds that were dropped because a run in them diverged.
        seconds: Mean seconds per world by role: ``original`` is the training of a shadow model.
        scores: Mean RA, UA and TA by role, over the same worlds.
    """

    inside: NDArray[np.bool_]
    shadow: NDArray[np.float64]
    retrained: NDArray[np.float64]
    unlearned: NDArray[np.float64] | None
    indices: NDArray[np.int64]
    method: str = ""
    diverged: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __repr__(self) -> str:
        name = f"{self.method}: " if self.method else ""
        return f"Worlds({name}{len(self.inside)} worlds, {len(self.indices)} targets, {self.diverged} diverged)"


def target_of(split: ForgetSplit) -> dict[str, Any]:
    """A split as the target of a sweep's cells, without the data.

    A random split is given by fraction and seed if these reproduce it, otherwise by its indices.
    """
    # Left out if there are none, so that stored runs keep their keys.
    earlier = {"already_forgotten": split.already_forgotten.tolist()} if len(split.already_forgotten) else {}
    if split.kind == "class":
        return {"kind": "class", "classes": list(split.classes), **earlier}
    if split.kind == "random" and split.seed is not None:
        fraction = _fraction(len(split.forget_indices), len(split.train) - len(split.already_forgotten))
        drawn = ForgetSplit.random(split.train, split.test, fraction, split.seed, target=split.target, **earlier)
        if np.array_equal(drawn.forget_indices, split.forget_indices):
            return {"kind": "random", "fraction": fraction, "seed": split.seed, **earlier}
    return {"kind": "index", "indices": split.forget_indices.tolist(), **earlier}


def _fraction(count: int, total: int) -> float:
    """The shortest decimal fraction that selects ``count`` of ``total`` samples."""
    rounded = (round(count / total, digits) for digits in range(1, 17))
    return next((f for f in rounded if 0 < f < 1 and max(1, round(f * total)) == count), count / total)


def world_cells(
    setting: Setting, target: Mapping[str, Any], count: int, methods: Mapping[str, Method], seed: int = 0
) -> list[Cell]:
    """The cells of all worlds: in each a shadow, a retrained reference, and one run per method.

    Args:
        setting: Problem, versions, threads.
        target: The audited forget set; see :func:`target_of`.
        count: Number of worlds.
        methods: Methods under audit, by name. Names are not part of a cell, so audits share their runs.
        seed: Seed of the worlds.
    """
    cells = []
    for world in range(count):
        cells += _world(setting, {**target, "world": world, "worlds_seed": seed})
        cells += [_run_of(setting, {**target, "world": world, "worlds_seed": seed}, m) for m in methods.values()]
    return cells


def _world(setting: Setting, target: Mapping[str, Any]) -> list[Cell]:
    """Shadow and reference of a world."""
    here: dict[str, Any] = {"setting": setting, "target": target, "seed": target["world"]}
    return [
        Cell(**here, role="original", series="Original", method={}),
        Cell(**here, role="retrained", series="Retrain", method=setting.training),
    ]


def _run_of(setting: Setting, target: Mapping[str, Any], method: Method) -> Cell:
    return Cell(
        setting=setting,
        target=target,
        seed=target["world"],
        role="run",
        protocol=_PROTOCOL,
        series=method.title,
        method=method.to_dict(),
        source=foreign_source(type(method)),
    )


def run_worlds(
    problem: str,
    split_target: Mapping[str, Any],
    methods: Mapping[str, Method],
    *,
    count: int = 32,
    seed: int = 0,
    store: Path,
    engine: str = "local",
    jobs: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    together: bool = False,
    watch: Watch | None = None,
) -> dict[str, Worlds]:
    """Train the worlds that the store does not have yet, and read the margins of all.

    Args:
        problem: Name of the problem, or ``module:function``.
        split_target: The audited forget set; see :func:`target_of`.
        methods: Methods under audit, by name.
        count: Number of worlds.
        seed: Seed of the worlds.
        store: Folder of the store; shadows and references are shared by all audits of the same forget set.
        engine: Engine of the sweep.
        jobs: Number of parallel runs.
        threads: Threads per run.
        device: Device of each run.
        together: Whether to train shadows and references as one program per job, several times as fast for small
            networks without convolutions. Margins then agree with those of separate trainings to rounding, and
            seconds are shares of the whole. Warns, and trains one by one, if the model does not allow it.
        watch: Called with the state of the sweep.

    Returns:
        Worlds by the name of the method; without methods, one entry under the empty name.

    Raises:
        GradPivotError: If the problem is not a classification, or a run fails.
    """
    if count < 1:
        raise GradPivotError(f"the number of worlds is {count}; give 1 or more")
    found = find_problem(problem)
    Classification.require(found.task, "an audit with shadow models")
    check_targets(problem, [{**split_target, "world": 0, "worlds_seed": seed}])
    setting = setting_of(problem, threads, device)
    chosen = {n: m if isinstance(m, Retrain) else filled(m, found.settings) for n, m in methods.items()}
    cells = world_cells(setting, split_target, count, chosen, seed)
    kept = Store(store, create=True)
    try:
        if len(kept.done(keys := list({cell.key for cell in cells}))) < len(keys):
            resources = Resources(
                log=kept.folder / "worker.log", jobs=jobs, threads=threads, gpus=float(device != "cpu")
            )
            running = start_engine(engine, resources)
            try:
                if together and (reason := train_ahead(cells, kept, running)):
                    warnings.warn(f"the worlds are trained one by one: {reason}", stacklevel=2)
                _train(cells, kept, running, watch)
            finally:
                running.close()
        reading = _Reading(kept, setting, split_target, count, seed)
        return {name: reading.worlds(name, chosen.get(name)) for name in chosen or ("",)}
    finally:
        kept.close()


def _train(cells: Sequence[Cell], store: Store, engine: Engine, watch: Watch | None) -> None:
    sweep = Sweep(cells, store, engine)
    sweep.run(watch)
    for _, what, reason in store.failures(sweep.keys):
        raise GradPivotError(f"{what} failed: {reason}")


@dataclass(frozen=True)
class _Reading:
    """Reads finished worlds from a store."""

    store: Store
    setting: Setting
    target: Mapping[str, Any]
    count: int
    seed: int

    def worlds(self, name: str, method: Method | None) -> Worlds:
        """The worlds of one method, without those in which a run diverged."""
        base = base_split(self.setting.problem, self.target)
        worlds = [self._records(world, method) for world in range(self.count)]
        complete = [k for k, records in enumerate(worlds) if all(r.margins is not None for r in records)]
        shape = (len(complete), len(base.forget_indices))

        def margins(role: int) -> NDArray[np.float64]:
            return np.array([worlds[k][role].margins for k in complete], dtype=np.float64).reshape(shape)

        inside = [world_split(base, k, self.seed)[1] for k in complete]
        return Worlds(
            inside=np.array(inside, dtype=bool).reshape(shape),
            shadow=margins(0),
            retrained=margins(1),
            unlearned=None if method is None else margins(2),
            indices=base.forget_indices,
            method=name,
            diverged=self.count - len(complete),
            seconds=self._seconds(worlds),
            scores=_mean_scores([worlds[k] for k in complete]),
        )

    def _records(self, world: int, method: Method | None) -> list[Record]:
        """Records of the shadow, the reference and the method's run."""
        target = {**self.target, "world": world, "worlds_seed": self.seed}
        cells = _world(self.setting, target) + ([] if method is None else [_run_of(self.setting, target, method)])
        records = [self.store.get(cell.key) for cell in cells]
        return [_checked(record, world) for record in records]

    def _seconds(self, worlds: Sequence[Sequence[Record]]) -> dict[str, float]:
        """Mean seconds by role; a store from another machine does not know how long its shadows took."""
        seconds: dict[str, list[float]] = {}
        for record in (record for records in worlds for record in records):
            known: float | None = record.provenance["timing"].get("unlearning")
            if record.role == "original":
                cell = Cell.from_dict(record.provenance["cell"])
                known = self.store.original_seconds(cell.original_key)
            if known is not None:
                seconds.setdefault(record.role, []).append(known)
        return {role: statistics.fmean(some) for role, some in seconds.items()}


def _mean_scores(worlds: Sequence[Sequence[Record]]) -> dict[str, dict[str, float]]:
    """Mean RA, UA and TA by role."""
    by_role = [[record.point.classification for record in records] for records in zip(*worlds, strict=True)]
    roles = [record.role for record in worlds[0]] if worlds else []
    return {
        role: {name: statistics.fmean(getattr(scores, name) for scores in found) for name in ("ra", "ua", "ta")}
        for role, found in zip(roles, by_role, strict=True)
    }


def _checked(record: Record | None, world: int) -> Record:
    if record is None:
        raise GradPivotError(f"a run of world {world} is missing or damaged in the store; run the audit again")
    return record
