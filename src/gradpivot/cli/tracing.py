"""The commands demo and trace, which run methods over their knobs."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.console import (
    bar,
    counted,
    quiet,
    say,
    say_json,
    say_result,
    say_shortfall,
    scores_line,
    wants_progress,
)
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import (
    check_options,
    computed,
    device_named,
    output_folder,
    prepare,
    problem_of,
    set_threads,
    split_of,
)
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem
    from gradpivot.results import Comparison

__all__ = ["save_drawn", "study", "write_comparison"]


@run.register
def _(chosen: options.DemoOptions) -> int:
    from gradpivot.experiments import demo_series, digits

    problem = digits()
    split = split_of(problem, classes=str(chosen.forget))
    with output_folder(chosen.out):
        comparison = study(
            problem,
            split,
            demo_series(),
            chosen,
            f"Forgetting the digit {chosen.forget}",
            chosen.seed,
            f"gradpivot demo --class {chosen.forget} --seed {chosen.seed} --threads {chosen.threads}",
        )
        write_comparison(comparison, chosen.out, chosen.json)
        _keep_run(problem, split, chosen)
    if not chosen.json:
        say(f"CUP at γ = 1 is kept with its weights: gradpivot audit {chosen.out / 'cup'}")
    return 0


def _keep_run(problem: Problem, split: ForgetSplit, chosen: options.DemoOptions) -> None:
    """Keep CUP at γ = 1 as a run folder, for 'gradpivot audit' and 'gradpivot rerun'."""
    from gradpivot.methods import CUP
    from gradpivot.models import save_weights
    from gradpivot.runs import original_model, write_run

    out = chosen.out / "cup"
    if (out / "metrics.json").exists():
        return
    original = original_model(problem, split, chosen.seed, chosen.out / f"original-{chosen.seed}.safetensors")
    checkpoint = chosen.out / "checkpoint.pt"
    prepared = problem.prepared(
        original, split, CUP(gamma=1.0), seed=chosen.seed, checkpoint=checkpoint, keep_checkpoint=True
    )
    config = {"problem": problem.name, "seed": chosen.seed, "threads": chosen.threads, "classes": str(chosen.forget)}
    save_weights(original, out / "original.safetensors", {"problem": problem.name, "seed": chosen.seed})
    write_run(out, {**config, **prepared.method.to_dict()}, split, prepared.run(), prepared.original())
    checkpoint.unlink(missing_ok=True)


@run.register
def _(chosen: options.TraceOptions) -> int:
    from gradpivot.evaluate import scored_metrics
    from gradpivot.results import check_metric, parse_conditions

    # Report invalid options before torch is imported and training starts.
    check_options(chosen)
    known = [metric.name for metric in scored_metrics("class" if chosen.classes else "random")]
    parse_conditions(chosen.pick or {}, known)
    check_metric(chosen.best, known)

    from gradpivot.api import over_knob

    over_knob(chosen.method, values=chosen.values or None)
    _check_quick(chosen)
    with output_folder(chosen.out):
        return _trace(chosen)


def _trace(chosen: options.TraceOptions) -> int:
    """Run the method at every value, or a quick trace."""
    from gradpivot.api import check_traceable, over_knob
    from gradpivot.methods import make_method
    from gradpivot.models import save_weights
    from gradpivot.sweep import Runs, run_study

    if (chosen.out / "metrics.json").exists():
        raise GradPivotError(f"{chosen.out} already holds a finished run; name another folder with --out")
    check_traceable(problem_of(chosen).scorer())
    problem, split, model = prepare(chosen, device_named(chosen.device))
    _refuse_other_trace(chosen, problem, split)
    if chosen.quick:
        return _quick_trace(chosen, problem, split, model)
    method = chosen.method
    with bar(f"{method.title} over {method.active_knob}", wants_progress(chosen.json)) as report:
        comparison = run_study(
            problem,
            split,
            {method.title: over_knob(method, values=chosen.values or None)},
            folder=chosen.out,
            title=f"{problem.name}: {method.title} over {method.active_knob}",
            report=counted(report),
            provenance={
                "command": f"gradpivot trace {method.name}, with {split.facts()['kind']} forgetting",
                "model": chosen.model or f"that of {problem.name}",
            },
            model=model,
            reference=chosen.reference,
            keep_models=chosen.pick is not None,
            **computed(chosen),
        )
    with quiet() if chosen.pick and chosen.json else nullcontext():
        write_comparison(comparison, chosen.out, chosen.json)
    if chosen.pick:
        picked = comparison.frontiers[0].pick(chosen.pick, chosen.best)
        ready = problem.prepared(model, split, make_method(picked.settings), **computed(chosen))
        result = Runs(chosen.out).result(ready)
        save_weights(result.model, chosen.out / "model.safetensors", {"method": result.method.label})
        if chosen.json:
            say_json(json.dumps(picked.to_dict() | {"history": {}}, indent=2))
        else:
            say_result(result, comparison.original.scores, chosen.out)
            say_shortfall(result)
    return 0


def _refuse_other_trace(chosen: options.TraceOptions, problem: Problem, split: ForgetSplit) -> None:
    """Raise if the folder holds a different trace, which this one would overwrite."""
    from gradpivot.results import Comparison

    file = chosen.out / "results.json"
    if not file.exists():
        return
    found = Comparison.load(file)
    settings = [point.settings for frontier in found.frontiers for point in frontier.points]
    own = chosen.method.to_dict()
    same = ("quick" in found.provenance) == chosen.quick and found.problem.get("name") == problem.name
    # Compare classes, not split hashes: a trace may have held out half of the test data for validation.
    same = same and found.problem.get("classes") == split.facts()["classes"]
    ignored = {chosen.method.active_knob, "batch_size", "augment"}  # The problem fills these in.
    same = same and all(value == own.get(name) for s in settings for name, value in s.items() if name not in ignored)
    if not same:
        raise GradPivotError(f"{chosen.out} holds a trace with other settings; name another folder with --out")


def study(
    problem: Problem, split: ForgetSplit, series: Any, chosen: Any, title: str, seed: int, command: str
) -> Comparison:
    """Run several series of methods on a problem, with a progress bar."""
    from gradpivot.sweep import run_study

    set_threads(chosen.threads)
    with bar(f"{problem.name}, seed {seed}", wants_progress(chosen.json)) as report:
        return run_study(
            problem,
            split,
            series,
            seed=seed,
            folder=chosen.out,
            title=title,
            report=counted(report),
            provenance={"command": command},
        )


def write_comparison(comparison: Comparison, out: Path, as_json: bool) -> None:
    """Write results.json, results.csv, figures and the page; print the table."""
    from gradpivot.report import (
        conflict_figure,
        console_table,
        frontier_figure,
        measurable,
        metrics_figure,
        point_table,
        with_reference,
        write_csv,
        write_page,
    )  # fmt: skip
    from gradpivot.runtime import write_text

    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(comparison.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
    write_text(out / "results.json", text)
    write_csv(comparison, out / "results.csv")
    write_page(comparison, out / "report.html")
    figures = {"frontier": frontier_figure, "metrics": metrics_figure, "conflict": conflict_figure}
    for name, draw in figures.items():
        save_drawn(out, name, draw(comparison))
    if as_json:
        say_json(text)
    else:
        # Without a reference some measures are unknown and no run is the best: show all.
        known = all(measurable(with_reference(frontier, comparison)) for frontier in comparison.frontiers)
        shown = console_table if known else point_table
        say(shown(comparison), f"Open {out / 'report.html'} in a browser; numbers are in {out}")


def save_drawn(out: Path, name: str, figure: Any) -> None:
    """Save a figure as PNG and PDF."""
    from gradpivot.report import save_figure

    for ending in ("png", "pdf"):
        save_figure(figure, out / f"{name}.{ending}")


def _check_quick(chosen: options.TraceOptions) -> None:
    from gradpivot.targets import check_quick

    if chosen.quick:
        if chosen.values:
            raise GradPivotError("a quick trace chooses its own points; drop --values or --quick")
        check_quick(chosen.method, chosen.points)
    elif chosen.points is not None:
        raise GradPivotError("--points needs --quick; without it use --values")


def _quick_trace(chosen: options.TraceOptions, problem: Problem, split: ForgetSplit, model: nn.Module) -> int:
    """Trace the frontier from one run and recommend a point."""
    from gradpivot.api import score, trace
    from gradpivot.models import save_weights
    from gradpivot.sweep import run_study

    prepared = problem.prepared(model, split, chosen.method, **computed(chosen))
    # Score the reference and the points on the same data.
    split, method = prepared.split, prepared.method
    title = f"{problem.name}: {method.title} over {method.active_knob}, one run"
    baseline = run_study(
        problem,
        split,
        {},
        folder=chosen.out,
        title=title,
        provenance={"command": f"gradpivot trace {method.name} --quick"},
        model=model,
        reference=chosen.reference,
        **computed(chosen),
    )
    scoring: dict[str, Any] = {"task": problem.task, "scorer": prepared.scorer}
    traced = trace(
        model,
        split,
        method,
        quick=True,
        points=chosen.points,
        checkpoint=chosen.out / "checkpoint.pt",
        reference=baseline.retrained.scores if baseline.retrained else None,
        progress=wants_progress(chosen.json),
        retain_scored=problem.retain_scored,
        **scoring,
        **computed(chosen),
    )
    choice, cost = traced.recommend(), traced.cost
    assert cost is not None
    # The point is chosen on one half of the test data and scored on the other.
    unseen = score(choice.result.model, split.with_validation(), **scoring)
    facts = {
        "cost_in_plain_runs": cost.total,
        "recommended": {**choice.to_dict(), "scores_on_unseen_data": unseen.to_dict()},
    }
    comparison = dataclasses.replace(baseline, frontiers=[traced], provenance={**baseline.provenance, "quick": facts})
    with quiet() if chosen.pick and chosen.json else nullcontext():
        write_comparison(comparison, chosen.out, chosen.json)
    picked_result = traced.pick_result(chosen.pick, chosen.best) if chosen.pick else choice.result
    save_weights(picked_result.model, chosen.out / "model.safetensors", {"method": picked_result.method.label})
    if chosen.json:
        if chosen.pick:
            say_json(json.dumps(picked_result.point().to_dict() | {"history": {}}, indent=2))
        return 0
    n = len(traced.points)
    say(
        f"{n} points at the cost of {cost.total:.1f} runs with scoring; a sweep of {n} costs {cost.of_sweep(n):.1f}",
        f"Recommended: {traced.points[choice.index].label}",
        choice.reason,
        f"On held-out test data: {scores_line(unseen, split.kind)}",
    )
    if chosen.pick:
        say_result(picked_result, traced.original, chosen.out)
        say_shortfall(picked_result)
    return 0
