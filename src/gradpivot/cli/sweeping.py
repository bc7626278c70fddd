"""Run sweeps with recipe, store and engine from the options, and read finished runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gradpivot.cli.console import standing, watched_sweep
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.options.sweeps import CompareOptions, SweepOptions
from gradpivot.errors import GradPivotError, check_parallel
from gradpivot.experiments import ForgetSpec, Recipe, load_recipe, numbers_in
from gradpivot.results import Record
from gradpivot.sweep import Failure, Resources, State, Store, Sweep, cells_of, start_engine

if TYPE_CHECKING:
    from gradpivot.sweep import Engine

__all__ = ["Finished", "asked_for", "finished_runs", "sweep"]


def sweep(chosen: SweepOptions) -> tuple[State, list[Failure]]:
    """Run the missing cells; returns the final state and the failures.

    Raises:
        KeyboardInterrupt: After Ctrl-C or SIGTERM; finished runs are kept.
    """
    recipe = asked_for(chosen)
    check_parallel("--threads", chosen.threads)
    check_parallel("--jobs", 1 if chosen.jobs is None else chosen.jobs)
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
    with _started_engine(chosen, store) as engine:
        running = Sweep(cells_of(recipe, setting), store, engine, judge)
        try:
            with watched_sweep(recipe.name, chosen.json) as watch:
                state = running.run(watch)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{standing(running.state)}; everything done is in {chosen.store}") from None
    return state, store.failures(running.keys)


class Finished(NamedTuple):
    """Finished runs of a store.

    Attributes:
        records: The selected runs.
        notes: Notes for readers: failed runs, separated settings.
        damaged: Names of damaged files, with what is wrong.
    """

    records: list[Record]
    notes: list[str]
    damaged: list[str]


def finished_runs(chosen: CompareOptions) -> Finished:
    """Read the selected runs of a store.

    Raises:
        GradPivotError: If there are none, or a name is unknown.
    """
    store = Store(chosen.store)
    # Shadow models of an audit are not runs to compare.
    records, notes = _separate_settings([record for record in store.records() if not record.is_shadow])
    runs = [record for record in records if record.role == "run"]
    methods, protocols = _names(chosen.methods), _names(chosen.protocols)
    if methods is not None:
        wanted = {name.casefold() for name in methods}
        _check_names("method", wanted, {name.casefold() for r in runs for name in (r.method, r.series)})
        records = [r for r in records if r.role != "run" or {r.method.casefold(), r.series.casefold()} & wanted]
    if protocols is not None:
        _check_names("protocol", set(protocols), {record.protocol for record in runs})
        records = [r for r in records if r.role != "run" or r.protocol in protocols]
    damaged = store.describe_damaged()
    if not any(record.role == "run" for record in records):
        why = f" ({len(damaged)} are damaged, such as {damaged[0]})" if damaged else ""
        raise GradPivotError(
            f"{chosen.store} has no finished run to compare{why}; run 'gradpivot sweep' first, or select other methods"
        )
    notes += _describe_failures(store.failures())
    return Finished(records, notes, damaged)


def _separate_settings(records: list[Record]) -> tuple[list[Record], list[str]]:
    """Rename problems that were run in several settings (versions, data, …), so that tables don't mix them."""
    settings: dict[str, dict[str, None]] = defaultdict(dict)
    for record in records:
        settings[record.problem][record.provenance.get("setting_key", "")] = None
    mixed = {problem for problem, keys in settings.items() if len(keys) > 1}
    notes = [
        f"{problem} was run in {len(settings[problem])} settings (versions, data, model, training, threads or device "
        f"differ); each has its own tables. Use one store per setting to keep the names."
        for problem in sorted(mixed)
    ]
    return [
        replace(r, problem=f"{r.problem} [{r.provenance.get('setting_key', '')[:6] or 'unknown'}]")
        if r.problem in mixed
        else r
        for r in records
    ], notes


def _describe_failures(failures: Sequence[Failure]) -> list[str]:
    """One line per series with failed runs: their number and the first reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for _, what, why in failures:
        reasons[what.split(" (")[0].split(", ")[0]].append(why)
    return [f"{len(some)} runs of {name} failed: {some[0]}" for name, some in reasons.items()]


def _check_names(what: str, wanted: set[str], known: set[str]) -> None:
    if missing := sorted(wanted - known):
        raise GradPivotError(f"the store has no {what} {missing[0]!r}; it has {', '.join(sorted(known))}")


def asked_for(chosen: SweepOptions) -> Recipe:
    """Load the recipe, restricted by the options."""
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
            raise GradPivotError(f"{error}, or skip it with --without {series.method}") from None


def _names(text: str) -> list[str] | None:
    return None if text == "all" else [part.strip() for part in text.split(",") if part.strip()]


@contextmanager
def _started_engine(chosen: SweepOptions, store: Store) -> Iterator[Engine]:
    """Start the chosen engine; closes it at the end of the block."""
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
