"""The commands sweep, compare, recipes and store."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import recipe_line, recipe_table, recipes_table, say, say_json, say_one, say_sweep
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import output_folder
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradpivot.report import Exports
    from gradpivot.results import Record

__all__: list[str] = []


@run.register
def _(chosen: options.SweepOptions) -> int:
    from gradpivot.cli.sweeping import sweep

    state, failures = sweep(chosen)
    if chosen.json:
        say_json(json.dumps({"state": dataclasses.asdict(state), "failures": failures}))
    else:
        say_sweep(state, failures, chosen.store)
    return 0 if state.is_whole else 1


@run.register
def _(chosen: options.CompareOptions) -> int:
    from gradpivot.cli.sweeping import finished_runs

    records, notes, damaged = finished_runs(chosen)
    comparison, exports, compared = _compare(chosen, records, notes)
    files = []
    if chosen.out is not None:
        formats = exports.formats if chosen.formats == "all" else chosen.formats.split(",")
        title = f"{_name_of(chosen.store)}: {compared} compared"
        with output_folder(chosen.out):
            files = exports.write(comparison, chosen.out, formats, title, ".png")
    if chosen.json:
        say_json(exports.json(comparison))
    else:
        say(exports.console(comparison), *([f"{len(files)} files are in {chosen.out}"] if files else []))
    _report_left_out(damaged)
    return 0


@run.register
def _(chosen: options.RecipesOptions) -> int:
    from gradpivot.experiments import OwnCodeError, list_recipes, load_recipe, read_recipe_text

    if chosen.recipe is None:
        found = [load_recipe(name) for name in list_recipes()]
        if chosen.json:
            say_json(json.dumps([recipe.to_dict() for recipe in found], indent=2))
        else:
            advice = "Show one: gradpivot recipes digits. Write your own as a YAML file in the same form"
            say(recipes_table(found), advice)
        return 0
    text = read_recipe_text(chosen.recipe).rstrip()
    try:
        recipe = load_recipe(chosen.recipe, imports=False)
    except OwnCodeError as error:
        if chosen.json:
            raise
        say(text, "", f"Not checked: {error}")
        return 0
    shown = (text, "", recipe_line(recipe), recipe_table(recipe))
    say_one(chosen.json, json.dumps(recipe.to_dict(), indent=2), *shown)
    return 0


@run.register
def _(chosen: options.StoreExportOptions) -> int:
    from gradpivot.sweep import Store

    store = Store(chosen.store)
    count = store.export(chosen.file, pictures=chosen.pictures)
    say(f"{count} runs are in {chosen.file}")
    _report_left_out(store.describe_damaged())
    return 0


@run.register
def _(chosen: options.StoreImportOptions) -> int:
    from gradpivot.sweep import Store

    new, known, other = Store(chosen.store, create=True).import_runs(chosen.file)
    say(f"{new} runs imported, {known} were already there")
    if other:
        say(f"{other} of those have other scores in this store than in {chosen.file}; the store's scores stay")
    return 0


@run.register
def _(chosen: options.StoreCheckOptions) -> int:
    from gradpivot.sweep import Store

    sound, damaged = Store(chosen.store).check()
    if damaged:
        raise GradPivotError(
            f"{len(damaged)} of {sound + len(damaged)} files are damaged: {_first(damaged)}. The next sweep repeats "
            f"these runs"
        )
    say(f"All {sound} files are intact")
    return 0


def _report_left_out(damaged: Sequence[str]) -> None:
    """Raise if damaged runs were left out, after everything else is written and printed."""
    if damaged:
        raise GradPivotError(f"left out {len(damaged)} damaged runs: {_first(damaged)}; the same sweep repeats them")


def _first(damaged: Sequence[str]) -> str:
    return f"{', '.join(damaged[:10])}{' …' if len(damaged) > 10 else ''}"


def _compare(
    chosen: options.CompareOptions, records: Sequence[Record], notes: Sequence[str]
) -> tuple[Any, Exports[Any], str]:
    """Returns the comparison, its exports and what it compares (methods or generators)."""
    from gradpivot.results import are_generators

    if are_generators(records):
        from gradpivot.report import GENERATORS
        from gradpivot.results import compare_generators

        return compare_generators(records, notes=notes), GENERATORS, "generators"
    from gradpivot.report import STANDINGS
    from gradpivot.results import standings

    return standings(records, beside=chosen.beside, notes=notes), STANDINGS, "methods"


def _name_of(store: Path) -> str:
    """A store's name: its folder, or the parent folder for an experiment's store."""
    folder = store.absolute()
    return folder.parent.name if folder.name == "store" else folder.name
