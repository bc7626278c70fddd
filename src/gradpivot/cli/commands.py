"""What each command does: load, call the layer below, write, print. No logic of its own."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from contextlib import nullcontext
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import (
    bar,
    percentages,
    quiet,
    recipe_line,
    recipe_table,
    recipes_table,
    say,
    say_json,
    say_result,
    say_sweep,
    say_target,
    say_trained,
    wants_bars,
    watched_training,
)
from gradpivot.cli.inputs import (
    check_model,
    device_named,
    prepare,
    problem_of,
    refuse_file,
    set_threads,
    split_of,
    suited,
)
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.parser import print_completion
from gradpivot.errors import GradPivotError
from gradpivot.torchrun import device_of_process, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.frontier.comparison import Comparison
    from gradpivot.frontier.frontier import Point
    from gradpivot.frontier.record import Record
    from gradpivot.parallel import Replicas
    from gradpivot.recipes.problem import Problem

__all__ = ["DIVERGED", "UNMET", "run"]

DIVERGED = 3
"""Exit status of a run that went to NaN: everything is written, but there is no unlearned model."""
UNMET = 4
"""Exit status of a run towards a target that was not met: the best compromise is written."""


@singledispatch
def run(chosen: Any) -> int:
    """Do what the options ask for and give the exit status."""
    # 'reproduce', 'store' and 'data' wrap the options of what follows.
    return run(chosen.chosen)


@run.register
def _(chosen: options.DemoOptions) -> int:
    from gradpivot.recipes.digits import demo_series, digits

    refuse_file(chosen.out)
    problem = digits()
    split = split_of(problem, classes=str(chosen.forget))
    comparison = _study(
        problem,
        split,
        demo_series(),
        chosen,
        f"Forgetting the digit {chosen.forget}",
        chosen.seed,
        f"gradpivot demo --class {chosen.forget} --seed {chosen.seed} --threads {chosen.threads}",
    )
    _write_comparison(comparison, chosen.out, chosen.json)
    return 0


@run.register
def _(chosen: options.TrainOptions) -> int:
    from gradpivot.run_folder import refuse_used, write_training
    from gradpivot.training import everything, train_model

    refuse_file(chosen.out)
    refuse_used(chosen.out, chosen.overwrite)
    set_threads(chosen.threads)
    device, problem = device_named(chosen.device), problem_of(chosen)
    data = everything(problem)
    if chosen.model is not None:
        check_model(problem, data, chosen.model)
    checkpoint = chosen.out / "checkpoint.pt"
    watched = watched_training(f"Training {problem.name}", chosen.training.epochs, chosen.json)
    with terminating(), watched as (progress, tell):
        trained = train_model(
            problem,
            chosen.training,
            data=data,
            seed=chosen.seed,
            device=device,
            precision=chosen.precision,
            compile=chosen.compile,
            workers=chosen.workers,
            evaluate_every=chosen.evaluate_every,
            progress=progress,
            tell=tell,
            checkpoint=checkpoint,
            checkpoint_seconds=chosen.checkpoint_every,
        )
    settings = chosen.training.to_dict()
    write_training(
        chosen.out,
        {**_computing(chosen, device), "evaluate_every": chosen.evaluate_every, **settings},
        trained,
    )
    checkpoint.unlink(missing_ok=True)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        named = {name: getattr(chosen, name) for name in ("problem", "model", "normalise")}
        say_trained(
            trained, " ".join(f"--{name} {value}" for name, value in named.items() if value), chosen.out
        )
    return DIVERGED if trained.diverged else 0


@run.register
def _(chosen: options.UnlearnOptions) -> int:
    kind = device_named(chosen.device)
    with joined(kind) as replicas, nullcontext() if replicas.is_first else quiet():
        return _unlearn(chosen, kind, replicas)


@run.register
def _(chosen: options.TraceOptions) -> int:
    from gradpivot.api import over_knob
    from gradpivot.frontier.selection import check_metric, parse_conditions
    from gradpivot.sweep.study import run_study

    # What was typed wrong is told before anything is trained.
    parse_conditions(chosen.pick or {})
    check_metric(chosen.best)
    over_knob(chosen.method, values=chosen.values or None)
    _check_quick(chosen)
    refuse_file(chosen.out)
    problem, split, model = prepare(chosen, device_named(chosen.device))
    method = suited(chosen.method, problem)
    if chosen.quick:
        return _quick_trace(chosen, problem, split, model, method)
    methods = over_knob(method, values=chosen.values or None)
    with bar(f"{method.title} over {method.knob}", wants_bars(chosen.json)) as report:
        comparison = run_study(
            problem,
            split,
            {method.title: methods},
            seed=chosen.seed,
            folder=chosen.out,
            title=f"{problem.name}: {method.title} over {method.knob}",
            report=_counted(report),
            provenance={
                "command": f"gradpivot trace {method.name}, with {split.facts()['kind']} forgetting",
                "model": chosen.model or f"that of {problem.name}",
            },
            model=model,
            reference=chosen.reference,
            workers=chosen.workers,
            precision=chosen.precision,
            compile=chosen.compile,
        )
    with quiet() if chosen.pick and chosen.json else nullcontext():
        _write_comparison(comparison, chosen.out, chosen.json)
    if chosen.pick:
        _keep_picked(comparison.frontiers[0].pick(chosen.pick, chosen.best), problem, split, model, chosen)
    return 0


@run.register
def _(chosen: options.ReproduceToyOptions) -> int:
    from gradpivot.sweep.toy import run_toy

    set_threads(chosen.threads)
    with bar("Toy, over seeds", wants_bars(chosen.json)) as report:
        outcome = run_toy(chosen.seed, chosen.seeds, report)
    chosen.out.mkdir(parents=True, exist_ok=True)
    from gradpivot.atomic import write_text
    from gradpivot.report.figures import save_figure
    from gradpivot.report.toy import toy_figure

    figure = toy_figure(outcome.panels)
    for ending in ("png", "pdf"):
        save_figure(figure, chosen.out / f"toy.{ending}")
    text = json.dumps(outcome.summary, indent=2) + "\n"
    write_text(chosen.out / "results.json", text)
    if chosen.json:
        say_json(text)
    else:
        say(outcome.table(), f"Figure and accuracies are in {chosen.out}")
    return 0


@run.register
def _(chosen: options.ReproduceDigitsOptions) -> int:
    from gradpivot.atomic import write_text
    from gradpivot.recipes.digits import digits, study_series
    from gradpivot.report.summary import summary, summary_markdown

    problem = digits()
    split = split_of(problem, classes=str(chosen.forget))
    title = f"Forgetting the digit {chosen.forget}: CUP, WS and GA over equal-size spaces"
    command = (
        f"gradpivot reproduce digits --class {chosen.forget} --seed {chosen.seed} --seeds {chosen.seeds} "
        f"--threads {chosen.threads}"
    )
    comparisons = [
        _study(problem, split, study_series(), chosen, title, seed, command)
        for seed in range(chosen.seed, chosen.seed + chosen.seeds)
    ]
    told = summary(comparisons)
    write_text(chosen.out / "summary.json", json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    write_text(chosen.out / "summary.md", summary_markdown(told))
    if chosen.json:
        say_json(json.dumps(told, ensure_ascii=False))
    else:
        say(summary_markdown(told), f"Summary is in {chosen.out}")
    return 0


@run.register
def _(chosen: options.ReproduceCifar10ClassOptions) -> int:
    return _swept_and_compared(
        chosen, {"short": "cifar10-pretrained", "full": "cifar10-class"}[chosen.preset]
    )


@run.register
def _(chosen: options.ReproduceDdpmOptions) -> int:
    return _swept_and_compared(chosen, {"small": "mnist-ddpm", "full": "cifar10-ddpm"}[chosen.preset])


@run.register
def _(chosen: options.ReproduceVaeOptions) -> int:
    from gradpivot.atomic import write_text
    from gradpivot.recipes.vae import vae_recipe
    from gradpivot.report.figures import save_figure
    from gradpivot.report.latent import latent_figure, latent_markdown
    from gradpivot.sweep.vae import run_vae

    refuse_file(chosen.out)
    set_threads(chosen.threads)
    recipe = vae_recipe(chosen.preset, chosen.protocol)
    if chosen.values:
        # Made first: a γ outside its range is told before anything is trained.
        [dataclasses.replace(recipe.method, gamma=gamma) for gamma in chosen.values]
        recipe = dataclasses.replace(recipe, gammas=chosen.values)
    with terminating(), bar("VAE over γ", wants_bars(chosen.json)) as report:
        outcome = run_vae(
            recipe, chosen.out, forgotten=chosen.forget, seed=chosen.seed, report=_counted(report)
        )
    figure = latent_figure(outcome.panels, chosen.forget)
    for ending in ("png", "pdf"):
        save_figure(figure, chosen.out / f"latent-map.{ending}")
    text = json.dumps(outcome.summary, indent=2, ensure_ascii=False) + "\n"
    table = latent_markdown(outcome.summary)
    write_text(chosen.out / "table.md", table)
    write_text(chosen.out / "results.json", text)
    if chosen.json:
        say_json(text)
    else:
        say(table, f"Figure, table and numbers are in {chosen.out}")
    return 0


@run.register
def _(chosen: options.JudgeOptions) -> int:
    from gradpivot.cli.judging import judge

    return judge(chosen)


@run.register
def _(chosen: options.MethodsOptions) -> int:
    from gradpivot.methods import list_methods, method_class

    found = [method_class(name) for name in list_methods(chosen.pattern)]
    if chosen.json:
        say_json(json.dumps([_described(method) for method in found], indent=2))
        return 0
    from rich.table import Table

    table = Table("method", "what it does", "knob", box=None, pad_edge=False)
    for method in found:
        table.add_row(method.name, (method.__doc__ or "").splitlines()[0], method.knob or "")
    say(table, "Settings of one: gradpivot unlearn METHOD --help")
    return 0


@run.register
def _(chosen: options.RerunOptions) -> int:
    from gradpivot.cli.parser import parse
    from gradpivot.run_folder import read_config, read_scores

    config, before = read_config(chosen.folder), read_scores(chosen.folder)
    # The original was kept under the model's own names: there is nothing left to rename.
    config.pop("map", None)
    original = chosen.folder / "original.safetensors"
    with tempfile.TemporaryDirectory() as scratch:
        out = chosen.out or Path(scratch) / "run"
        file = Path(scratch) / "config.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        words = ["unlearn", "--config", str(file), "--out", str(out), "--weights", str(original)]
        if "indices" in config:
            words += ["--indices", str(_saved_indices(chosen.folder, Path(scratch)))]
        with quiet():
            run(parse(words))
        after = read_scores(out)
    different = [name for name in before if before[name] != after[name]]
    if different:
        told = ", ".join(f"{name} {before[name]} then, {after[name]} now" for name in different)
        raise GradPivotError(
            f"the second run scored differently: {told}. Compare environment.json: versions, threads or the "
            f"machine may have changed"
        )
    if after["n_forget"] == 0:
        say("The run diverged again, as it did before; there are no scores to compare")
        return DIVERGED
    say(f"The same scores, to the last digit: {percentages(after)}")
    return 0


@run.register
def _(chosen: options.ReportOptions) -> int:
    from gradpivot.frontier.comparison import Comparison

    _write_comparison(Comparison.load(chosen.results), chosen.out or chosen.results.parent, False)
    return 0


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
    from gradpivot.frontier.generators import are_generators
    from gradpivot.frontier.standings import standings
    from gradpivot.report.standings_files import FORMATS, write_standings
    from gradpivot.report.standings_tables import standings_console, standings_json

    records, notes, damaged = finished_runs(chosen)
    if chosen.out is not None:
        refuse_file(chosen.out)
    if are_generators(records):
        files = _compare_generators(chosen, records, notes)
    else:
        told = standings(records, beside=chosen.beside, notes=notes)
        files = []
        if chosen.out is not None:
            formats = FORMATS if chosen.formats == "all" else chosen.formats.split(",")
            files = write_standings(told, chosen.out, formats, title=f"{chosen.store.name}: methods compared")
        if chosen.json:
            say_json(standings_json(told))
        else:
            say(standings_console(told))
    if files and not chosen.json:
        say(f"{len(files)} files are in {chosen.out}")
    if damaged:
        raise GradPivotError(
            f"left out because damaged: {', '.join(damaged[:10])}{' …' if len(damaged) > 10 else ''}; the same "
            f"sweep does them again"
        )
    return 0


@run.register
def _(chosen: options.RecipesOptions) -> int:
    from gradpivot.recipes.recipe import list_recipes, load_recipe, read_recipe_text

    if chosen.recipe is None:
        found = [load_recipe(name) for name in list_recipes()]
        if chosen.json:
            say_json(json.dumps([recipe.to_dict() for recipe in found], indent=2))
        else:
            say(
                recipes_table(found),
                "Show one: gradpivot recipes digits. Your own is a YAML file in the same form",
            )
        return 0
    sys.path.insert(0, str(Path.cwd()))
    recipe = load_recipe(chosen.recipe)
    if chosen.json:
        say_json(json.dumps(recipe.to_dict(), indent=2))
    else:
        say(read_recipe_text(chosen.recipe).rstrip(), "", recipe_line(recipe), recipe_table(recipe))
    return 0


@run.register
def _(chosen: options.StoreExportOptions) -> int:
    from gradpivot.sweep.store import Store

    count = Store(chosen.store).export(chosen.file)
    say(f"{count} runs are in {chosen.file}")
    return 0


@run.register
def _(chosen: options.StoreImportOptions) -> int:
    from gradpivot.sweep.store import Store

    new, known, other = Store(chosen.store, create=True).take_in(chosen.file)
    say(f"{new} runs taken in, {known} were here already")
    if other:
        say(f"{other} of those have other scores here than in {chosen.file}; this store's stay")
    return 0


@run.register
def _(chosen: options.StoreCheckOptions) -> int:
    from gradpivot.sweep.store import Store

    sound, damaged = Store(chosen.store).check()
    if damaged:
        raise GradPivotError(
            f"{len(damaged)} of {sound + len(damaged)} files are damaged: {', '.join(damaged[:10])}"
            f"{' …' if len(damaged) > 10 else ''}. The next sweep does these runs again"
        )
    say(f"All {sound} files are sound")
    return 0


@run.register
def _(chosen: options.DataGetOptions) -> int:
    from gradpivot.cli.datasets import get_data

    get_data(chosen)
    return 0


@run.register
def _(chosen: options.DataListOptions) -> int:
    from gradpivot.cli.datasets import list_data

    list_data(chosen)
    return 0


@run.register
def _(chosen: options.DataCheckOptions) -> int:
    from gradpivot.cli.datasets import check_data

    check_data(chosen)
    return 0


@run.register
def _(chosen: options.CompletionOptions) -> int:
    print_completion(chosen.shell)
    return 0


def _swept_and_compared(
    chosen: options.ReproduceCifar10ClassOptions | options.ReproduceDdpmOptions, recipe: str
) -> int:
    """A sweep in ``out/store``, then its comparison in ``out``."""
    from gradpivot.cli.sweeping import sweep

    refuse_file(chosen.out)
    store = chosen.out / "store"
    named = {field.name for field in dataclasses.fields(options.SweepOptions)} - {"json"}
    shared = {name: value for name, value in vars(chosen).items() if name in named}
    state, failures = sweep(options.SweepOptions(recipe=recipe, store=store, **shared))
    if not chosen.json:
        say_sweep(state, failures, store)
    run(options.CompareOptions(store=store, out=chosen.out, json=chosen.json))
    return 0 if state.is_whole else 1


def _compare_generators(
    chosen: options.CompareOptions, records: Sequence[Record], notes: Sequence[str]
) -> list[Path]:
    """The same for runs that were judged by their samples."""
    from gradpivot.frontier.generators import compare_generators
    from gradpivot.report.generators_files import FORMATS, write_generators
    from gradpivot.report.generators_tables import generators_console, generators_json

    told, files = compare_generators(records, notes=notes), []
    if chosen.out is not None:
        formats = FORMATS if chosen.formats == "all" else chosen.formats.split(",")
        files = write_generators(told, chosen.out, formats, title=f"{chosen.store.name}: generators compared")
    if chosen.json:
        say_json(generators_json(told))
    else:
        say(generators_console(told))
    return files


def _unlearn(chosen: options.UnlearnOptions, kind: str, replicas: Replicas) -> int:
    """One run, or one search; of several processes all do it, and the first one writes and speaks."""
    from gradpivot.cli.judging import examination_of
    from gradpivot.control.controller import (
        Targeted,
        check_walkable,
        forget_checkpoints,
        unlearn_until,
    )
    from gradpivot.control.targets import Targets
    from gradpivot.run import run_method
    from gradpivot.run_folder import refuse_used, write_run

    # What was typed wrong is told before anything is trained.
    aimed = chosen.until is not None or chosen.keep is not None
    targets = Targets.read(chosen.until, chosen.keep) if aimed else None
    if targets is not None:
        check_walkable(chosen.method)
    refuse_file(chosen.out)
    refuse_used(chosen.out, chosen.overwrite)
    problem, split, model = prepare(chosen, device_of_process(kind), replicas)
    method = suited(chosen.method, problem)
    checkpoint = chosen.out / "checkpoint.pt"
    # torchrun ends the others by SIGTERM when one is lost: nobody has interrupted them, and the one that noticed tells.
    ending = terminating() if replicas.size == 1 else nullcontext()
    with ending, bar(method.title, wants_bars(chosen.json)) as report:
        settings: dict[str, Any] = {
            "seed": chosen.seed,
            "task": problem.task,
            "factory": problem.model,
            "workers": chosen.workers,
            "progress": report,
            "checkpoint": checkpoint,
            "keep_checkpoint": True,
            "retain_scored": problem.retain_scored,
            "precision": chosen.precision,
            "compile": chosen.compile,
            "replicas": replicas,
        }
        if targets is None:
            result = run_method(model, split, method, **settings)
        else:
            judged = examination_of(problem, split, chosen.out, device_of_process(kind), quiet=chosen.json)
            result = unlearn_until(model, split, method, targets, examination=judged, **settings)
    unmet = isinstance(result, Targeted) and not result.met
    status = DIVERGED if result.diverged else UNMET if unmet else 0
    if not replicas.is_first:
        return status
    _keep_original(model, chosen)
    write_run(
        chosen.out, _config(chosen, kind, method), split.with_validation() if targets else split, result
    )
    checkpoint.unlink(missing_ok=True)
    if targets is not None:
        forget_checkpoints(checkpoint, replicas)
    if chosen.json:
        say_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        say_result(result, chosen.out)
    if isinstance(result, Targeted):
        say_target(result, beside_json=chosen.json)
    return status


def _study(
    problem: Problem, split: ForgetSplit, series: Any, chosen: Any, title: str, seed: int, command: str
) -> Comparison:
    from gradpivot.sweep.study import run_study

    set_threads(chosen.threads)
    with bar(f"{problem.name}, seed {seed}", wants_bars(chosen.json)) as report:
        return run_study(
            problem,
            split,
            series,
            seed=seed,
            folder=chosen.out,
            title=title,
            report=_counted(report),
            provenance={"command": command},
        )


def _write_comparison(comparison: Comparison, out: Path, as_json: bool) -> None:
    """results.json, results.csv, figures and the page; the table on the console."""
    from gradpivot.atomic import write_text
    from gradpivot.report import figures
    from gradpivot.report.page import write_page
    from gradpivot.report.tables import console_table, write_csv

    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(comparison.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
    write_text(out / "results.json", text)
    write_csv(comparison, out / "results.csv")
    write_page(comparison, out / "report.html")
    drawn = {
        "frontier": figures.frontier_figure,
        "metrics": figures.metrics_figure,
        "conflict": figures.conflict_figure,
    }
    for name, draw in drawn.items():
        figure = draw(comparison)
        for ending in ("png", "pdf"):
            figures.save_figure(figure, out / f"{name}.{ending}")
    if as_json:
        say_json(text)
    else:
        say(console_table(comparison), f"Open {out / 'report.html'} in a browser; numbers are in {out}")


def _check_quick(chosen: options.TraceOptions) -> None:
    from gradpivot.control.continuation import to_the_end

    if chosen.quick:
        if chosen.values:
            raise GradPivotError("a quick trace finds its points itself; leave out --values, or --quick")
        to_the_end(chosen.method, chosen.points)
    elif chosen.points is not None:
        raise GradPivotError("--points is for --quick; name the settings by --values")


def _quick_trace(
    chosen: options.TraceOptions, problem: Problem, split: ForgetSplit, model: nn.Module, method: Any
) -> int:
    """The line of one run beside the original and the reference, and which of its points to take."""
    from gradpivot.api import score, trace
    from gradpivot.sweep.study import run_study
    from gradpivot.weights import save_weights

    title = f"{problem.name}: {method.title} over {method.knob}, one run"
    computed: dict[str, Any] = {
        "workers": chosen.workers,
        "precision": chosen.precision,
        "compile": chosen.compile,
    }
    beside = run_study(
        problem,
        split,
        {},
        seed=chosen.seed,
        folder=chosen.out,
        title=title,
        provenance={"command": f"gradpivot trace {method.name} --quick"},
        model=model,
        reference=chosen.reference,
        **computed,
    )
    scoring: dict[str, Any] = {"task": problem.task, "retain_scored": problem.retain_scored}
    traced = trace(
        model,
        split,
        method,
        quick=True,
        points=chosen.points,
        reference=beside.retrained.classification if beside.retrained else None,
        progress=wants_bars(chosen.json),
        seed=chosen.seed,
        **scoring,
        **computed,
    )
    choice, cost = traced.recommend(), traced.cost
    assert cost is not None
    # Half of the test data chose; the other half says what was chosen.
    unseen = score(choice.result.model, split.with_validation(), workers=chosen.workers, **scoring)
    told = {
        "cost_in_plain_runs": cost.total,
        "recommended": {**choice.to_dict(), "scores_on_unseen_data": unseen.to_dict()},
    }
    comparison = dataclasses.replace(
        beside, frontiers=[traced], provenance={**beside.provenance, "quick": told}
    )
    with quiet() if chosen.pick and chosen.json else nullcontext():
        _write_comparison(comparison, chosen.out, chosen.json)
    taken = traced.pick_result(chosen.pick, chosen.best) if chosen.pick else choice.result
    save_weights(taken.model, chosen.out / "model.safetensors", {"method": taken.method.label})
    if chosen.json:
        if chosen.pick:
            say_json(json.dumps(taken.point().to_dict() | {"history": {}}, indent=2))
        return 0
    n = len(traced.points)
    say(
        f"{n} points for {cost.total:.1f} plain runs, scoring included; a sweep of {n} takes {cost.of_sweep(n):.1f}",
        f"Recommended: {traced.points[choice.index].label}; {choice.reason}",
        f"On test data that had no part in it: {percentages(unseen.to_dict())}",
    )
    if chosen.pick:
        say_result(taken, chosen.out)
    return 0


def _counted(report: Any) -> Any:
    """A study's progress on a plain bar."""
    return (lambda done, total, what: report(done, total)) if report else None


def _keep_picked(
    point: Point, problem: Problem, split: ForgetSplit, model: nn.Module, chosen: options.TraceOptions
) -> None:
    """The picked point's model: run once more, because a record holds numbers and no weights."""
    from gradpivot.methods import make_method
    from gradpivot.run import run_method
    from gradpivot.weights import save_weights

    result = run_method(
        model,
        split,
        make_method(point.settings),
        seed=chosen.seed,
        task=problem.task,
        factory=problem.model,
        workers=chosen.workers,
        retain_scored=problem.retain_scored,
        precision=chosen.precision,
        compile=chosen.compile,
    )
    save_weights(result.model, chosen.out / "model.safetensors", {"method": result.method.label})
    if chosen.json:
        say_json(json.dumps(point.to_dict() | {"history": {}}, indent=2))
    else:
        say_result(result, chosen.out)


def _saved_indices(folder: Path, scratch: Path) -> Path:
    """The forgotten indices of a run as a file; the one it was started with may be gone."""
    saved = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    path = scratch / "indices.txt"
    path.write_text("\n".join(map(str, saved["forget_indices"])), encoding="utf-8")
    return path


def _keep_original(model: nn.Module, chosen: options.UnlearnOptions) -> None:
    from gradpivot.weights import save_weights

    facts = {"problem": chosen.problem, "seed": chosen.seed}
    if chosen.model is not None:
        facts["model"] = chosen.model
    save_weights(model, chosen.out / "original.safetensors", facts)


def _config(chosen: options.UnlearnOptions, kind: str, method: Any) -> dict[str, Any]:
    """The options that decide the numbers, as 'unlearn --config' reads them; no path of this machine."""
    settings: dict[str, Any] = {
        **_computing(chosen, kind),
        "map": list(chosen.map) or None,
        "classes": chosen.classes,
        "fraction": chosen.fraction,
        "indices": str(chosen.indices) if chosen.indices else None,
        "until": chosen.until,
        "keep": chosen.keep,
        **method.to_dict(),
    }
    optional = ("map", "classes", "fraction", "indices", "until", "keep")
    return {name: value for name, value in settings.items() if value is not None or name not in optional}


def _computing(chosen: options.ProblemRun, device: str) -> dict[str, Any]:
    """The options of every run that decide its numbers."""
    model = {"model": chosen.model, "normalise": chosen.normalise}
    return {
        "problem": chosen.problem,
        **{name: value for name, value in model.items() if value is not None},
        "seed": chosen.seed,
        "threads": chosen.threads,
        "device": device,
        "precision": chosen.precision,
        "compile": chosen.compile,
    }


def _described(method: Any) -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "summary": (method.__doc__ or "").splitlines()[0],
        "knob": method.knob,
        "defaults": {f.name: f.default for f in dataclasses.fields(method)},
        "paper": dict(method.paper),
        "paper_space": {name: list(values) for name, values in method.paper_space.items()},
    }
