"""The command sweep: put recipe, store and engine together, and always shut down cleanly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gradpivot.cli.console import standing, watched_sweep
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.options.sweeps import CompareOptions, SweepOptions
from gradpivot.cli.parser import look_here
from gradpivot.errors import GradPivotError
from gradpivot.experiments import ForgetSpec, Recipe, load_recipe, numbers_in
from gradpivot.results import Record
from gradpivot.sweep import Failure, Resources, State, Store, Sweep, start_engine

if TYPE_CHECKING:
    from gradpivot.sweep import Engine

__all__ = ["Finished", "asked_for", "finished_runs", "sweep"]


def sweep(chosen: SweepOptions) -> tuple[State, list[Failure]]:
    """Run what is missing and return the final state and the failures.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, with everything finished kept and the way to go on told.
    """
    look_here()
    recipe = asked_for(chosen)
    if chosen.threads < 1:
        raise GradPivotError(f"--threads is {chosen.threads}; give 1 or more")
    with terminating():
        store = Store(chosen.store, create=True)
        try:
            return _run(recipe, chosen, store)
        finally:
            store.close()


def _run(recipe: Recipe, chosen: SweepOptions, store: Store) -> tuple[State, list[Failure]]:
    from gradpivot.sweep import work

    _check_installed(recipe)
    device = "cuda" if chosen.gpus > 0 else "cpu"
    setting = work.setting_of(recipe.problem, chosen.threads, device)
    judge = work.judge_setting(recipe.problem, chosen.threads, device)
    work.check_targets(recipe.problem, [target for some in recipe.forget for target in some.targets])
    recipe = recipe.suited(work.own_settings(recipe.problem))
    with _engine(chosen, store) as engine:
        going = Sweep(recipe, setting, store, engine, judge)
        try:
            with watched_sweep(recipe.name, chosen.json) as watch:
                state = going.run(watch)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{standing(going.state)}; everything done is in {chosen.store}") from None
    return state, store.failures(going.keys)


class Finished(NamedTuple):
    """What a store has for a comparison.

    Attributes:
        records: The runs that were asked for.
        notes: What a reader must know: runs that failed, settings that were kept apart.
        damaged: Names of files that cannot be trusted.
    """

    records: list[Record]
    notes: list[str]
    damaged: list[str]


def finished_runs(chosen: CompareOptions) -> Finished:
    """The runs of a store that the options name.

    Raises:
        GradPivotError: if there is none, or a name is not in it.
    """
    store = Store(chosen.store)
    records, notes = _kept_apart(store.records())
    runs = [record for record in records if record.role == "run"]
    methods, protocols = _names(chosen.methods), _names(chosen.protocols)
    if methods is not None:
        wanted = {name.casefold() for name in methods}
        _known_names("method", wanted, {name.casefold() for r in runs for name in (r.method, r.series)})
        records = [r for r in records if r.role != "run" or {r.method.casefold(), r.series.casefold()} & wanted]
    if protocols is not None:
        _known_names("protocol", set(protocols), {record.protocol for record in runs})
        records = [r for r in records if r.role != "run" or r.protocol in protocols]
    if not any(record.role == "run" for record in records):
        raise GradPivotError(
            f"{chosen.store} has no finished run to compare; fill it with 'gradpivot sweep', or ask for others"
        )
    notes += _failed(store.failures())
    return Finished(records, notes, [path.name for path in store.damaged])


def _kept_apart(records: list[Record]) -> tuple[list[Record], list[str]]:
    """Give runs of other versions, data, models or thread counts series of their own, so that they don't mix."""
    settings: dict[str, dict[str, None]] = defaultdict(dict)
    for record in records:
        settings[record.problem][record.provenance.get("setting_key", "")] = None
    mixed = {problem for problem, keys in settings.items() if len(keys) > 1}
    notes = [
        f"{problem} was run in {len(settings[problem])} settings (versions, data, model, training, threads or device "
        f"differ); each has its own tables. Use a store for each to keep their names."
        for problem in sorted(mixed)
    ]
    return [
        replace(r, problem=f"{r.problem} [{r.provenance.get('setting_key', '')[:6] or 'unknown'}]")
        if r.problem in mixed
        else r
        for r in records
    ], notes


def _failed(failures: Sequence[Failure]) -> list[str]:
    """The failed runs by series, with one reason each."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for _, what, why in failures:
        reasons[what.split(" (")[0].split(", ")[0]].append(why)
    return [f"{len(some)} runs of {name} could not be done: {some[0]}" for name, some in reasons.items()]


def _known_names(what: str, wanted: set[str], there: set[str]) -> None:
    if missing := sorted(wanted - there):
        raise GradPivotError(f"the store has no {what} {missing[0]!r}; it has {', '.join(sorted(there))}")


def asked_for(chosen: SweepOptions) -> Recipe:
    """The recipe, or the part of it that the options name."""
    recipe = load_recipe(chosen.recipe)
    forget: list[ForgetSpec] = []
    if chosen.classes is not None:
        forget.append(ForgetSpec(classes=numbers_in(chosen.classes)))
    if chosen.fraction is not None:
        forget.append(ForgetSpec(fraction=chosen.fraction))
    return recipe.only(
        methods=_names(chosen.methods),
        without=_names(chosen.without) or (),
        protocols=_names(chosen.protocols),
        forget=forget,
        seeds=chosen.seeds,
    )


def _check_installed(recipe: Recipe) -> None:
    for series in recipe.series:
        try:
            series.methods[0].check_installed()
        except GradPivotError as error:
            raise GradPivotError(f"{error}, or leave it out with --without {series.method}") from None


def _names(text: str) -> list[str] | None:
    return None if text == "all" else [part.strip() for part in text.split(",") if part.strip()]


@contextmanager
def _engine(chosen: SweepOptions, store: Store) -> Iterator[Engine]:
    """The engine that the options name, always stopped at the end of the block."""
    engine = start_engine(
        chosen.engine,
        Resources(
            jobs=chosen.jobs,
            threads=chosen.threads,
            cpus=chosen.cpus,
            gpus=chosen.gpus,
            address=chosen.address,
            log=store.folder / "worker.log",
        ),
    )
    try:
        yield engine
    finally:
        engine.close()
