"""The sweep command: recipe, store and engine put together, and a clean end whatever happens."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.console import standing, watched_sweep
from gradpivot.cli.options import CompareOptions, SweepOptions
from gradpivot.errors import GradPivotError
from gradpivot.frontier.record import Record
from gradpivot.recipes.recipe import Forgetting, Recipe, load_recipe, numbers_in
from gradpivot.sweep.store import Failure, Store
from gradpivot.sweep.sweeping import State, Sweep

if TYPE_CHECKING:
    from gradpivot.sweep.job import Engine

__all__ = ["asked_for", "finished_runs", "sweep"]


def sweep(chosen: SweepOptions) -> tuple[State, list[Failure]]:
    """Run what is missing; give how it ended and what failed.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, with everything finished kept and the way to go on told.
    """
    recipe = asked_for(chosen)
    if chosen.threads < 1:
        raise GradPivotError(f"--threads is {chosen.threads}; give 1 or more")
    # A console script, unlike "python -m", does not look for modules where the user stands.
    sys.path.insert(0, str(Path.cwd()))
    store = Store(chosen.store, create=True)
    try:
        setting = _setting(recipe, chosen)
        with _terminating(), _engine(chosen, store) as engine:
            going = Sweep(recipe, setting, store, engine)
            try:
                with watched_sweep(recipe.name, chosen.json) as watch:
                    state = going.run(watch)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"{standing(going.state)}; everything done is in {chosen.store}"
                ) from None
        return state, store.failures()
    finally:
        store.close()


def finished_runs(chosen: CompareOptions) -> tuple[list[Record], list[str]]:
    """The runs of a store that the options name, and the names of files that cannot be trusted.

    Raises:
        GradPivotError: if there is none.
    """
    store = Store(chosen.store)
    records = store.records()
    methods, protocols = _names(chosen.methods), _names(chosen.protocols)
    if methods is not None:
        wanted = {name.casefold() for name in methods}
        records = [r for r in records if r.role != "run" or {r.method, r.series.casefold()} & wanted]
    if protocols is not None:
        records = [r for r in records if r.role != "run" or r.protocol in protocols]
    if not any(record.role == "run" for record in records):
        raise GradPivotError(
            f"{chosen.store} has no finished run to compare; fill it with 'gradpivot sweep', or ask for others"
        )
    return records, [path.name for path in store.damaged]


def asked_for(chosen: SweepOptions) -> Recipe:
    """The recipe, or the part of it that the options name."""
    recipe = load_recipe(chosen.recipe)
    forget: list[Forgetting] = []
    if chosen.classes is not None:
        forget.append(Forgetting(classes=numbers_in(chosen.classes)))
    if chosen.fraction is not None:
        forget.append(Forgetting(fraction=chosen.fraction))
    return recipe.only(
        methods=_names(chosen.methods),
        protocols=_names(chosen.protocols),
        forget=forget,
        seeds=chosen.seeds,
    )


def _names(text: str) -> list[str] | None:
    return None if text == "all" else [part.strip() for part in text.split(",") if part.strip()]


def _setting(recipe: Recipe, chosen: SweepOptions) -> Any:
    from gradpivot.sweep.work import setting_of

    return setting_of(recipe.problem, chosen.threads, "cuda" if chosen.gpus > 0 else "cpu")


@contextmanager
def _engine(chosen: SweepOptions, store: Store) -> Iterator[Engine]:
    """The engine that the options name, stopped at the end of the block whatever happens."""
    engine: Engine
    if chosen.engine == "ray":
        from gradpivot.sweep.ray_engine import RayEngine

        engine = RayEngine(chosen.address, cpus=chosen.cpus, gpus=chosen.gpus)
    else:
        from gradpivot.sweep.local import LocalEngine

        jobs = chosen.jobs if chosen.jobs is not None else os.cpu_count() or 1
        engine = LocalEngine(jobs, chosen.threads, store.folder / "worker.log")
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM, which batch systems send, ends the block as Ctrl-C does."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
