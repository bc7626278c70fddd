"""What each command does: load, call the layer below, write, print. No logic of its own."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli import options
from gradpivot.cli.parser import print_completion
from gradpivot.errors import GradPivotError

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data.split import ForgetSplit
    from gradpivot.frontier.comparison import Comparison
    from gradpivot.recipes.problem import Problem

__all__ = ["DIVERGED", "run"]

DIVERGED = 3
"""Exit status of a run that went to NaN: everything is written, but there is no unlearned model."""


@singledispatch
def run(chosen: Any) -> int:
    """Do what the options ask for and give the exit status."""
    # 'reproduce' wraps the options of its experiment.
    return run(chosen.experiment)


@run.register
def _(chosen: options.DemoOptions) -> int:
    from gradpivot.recipes.digits import demo_series, digits

    problem = digits()
    split = _split(problem, classes=str(chosen.forget))
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
def _(chosen: options.UnlearnOptions) -> int:
    from gradpivot.api import unlearn
    from gradpivot.run_folder import refuse_used, write_run

    refuse_used(chosen.out, chosen.overwrite)
    problem, split, model = _prepare(chosen)
    method = _suited(chosen.method, problem)  # type: ignore[attr-defined]
    result = unlearn(
        model,
        split,
        method,
        seed=chosen.seed,
        task=problem.task,
        factory=problem.model,
        workers=chosen.workers,
        progress=_wants_bars(chosen.json),
        checkpoint=chosen.out / "checkpoint.pt",
    )
    _keep_original(model, chosen)
    write_run(chosen.out, _config(chosen, method), split, result)
    if chosen.json:
        _print_json((chosen.out / "metrics.json").read_text(encoding="utf-8"))
    else:
        _print_result(result, chosen.out)
    return DIVERGED if result.diverged else 0


@run.register
def _(chosen: options.TraceOptions) -> int:
    from gradpivot.api import trace, unlearn

    problem, split, model = _prepare(chosen)
    method = _suited(chosen.method, problem)  # type: ignore[attr-defined]
    shared: dict[str, Any] = {
        "seed": chosen.seed, "task": problem.task, "factory": problem.model, "workers": chosen.workers,
    }  # fmt: skip
    bars = _wants_bars(chosen.json)
    reference = unlearn(model, split, problem.training, progress=bars, **shared) if chosen.reference else None
    traced = trace(
        model, split, method, values=chosen.values or None, reference=reference, progress=bars, **shared
    )
    comparison = traced.comparison(f"{problem.name}: {method.title} over {method.knob}")
    comparison = dataclasses.replace(comparison, problem={"name": problem.name, **comparison.problem})
    _write_comparison(comparison, chosen.out, chosen.json and not chosen.pick)
    if chosen.pick:
        picked = traced.pick_result(chosen.pick, chosen.best)
        from gradpivot.weights import save_weights

        save_weights(picked.model, chosen.out / "model.safetensors", {"method": picked.method.label})
        if chosen.json:
            _print_json(json.dumps(picked.point().to_dict() | {"history": {}}, indent=2))
        else:
            _print_result(picked, chosen.out)
    return 0


@run.register
def _(chosen: options.ReproduceToyOptions) -> int:
    from gradpivot.sweep.toy import run_toy

    _set_threads(chosen.threads)
    with _bar("Toy, over seeds", _wants_bars(chosen.json)) as report:
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
        _print_json(text)
    else:
        _print(outcome.table(), f"Figure and accuracies are in {chosen.out}")
    return 0


@run.register
def _(chosen: options.ReproduceDigitsOptions) -> int:
    from gradpivot.atomic import write_text
    from gradpivot.recipes.digits import digits, study_series
    from gradpivot.report.summary import summary, summary_markdown

    problem = digits()
    split = _split(problem, classes=str(chosen.forget))
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
        _print_json(json.dumps(told, ensure_ascii=False))
    else:
        _print(summary_markdown(told), f"Summary is in {chosen.out}")
    return 0


@run.register
def _(chosen: options.MethodsOptions) -> int:
    from gradpivot.methods import list_methods, method_class

    found = [method_class(name) for name in list_methods(chosen.pattern)]
    if chosen.json:
        _print_json(json.dumps([_described(method) for method in found], indent=2))
        return 0
    from rich.table import Table

    table = Table("method", "what it does", "knob", box=None, pad_edge=False)
    for method in found:
        table.add_row(method.name, (method.__doc__ or "").splitlines()[0], method.knob or "")
    _print(table, "Settings of one: gradpivot unlearn METHOD --help")
    return 0


@run.register
def _(chosen: options.RerunOptions) -> int:
    from gradpivot.cli.parser import parse
    from gradpivot.run_folder import read_config, read_scores

    config, before = read_config(chosen.folder), read_scores(chosen.folder)
    original = chosen.folder / "original.safetensors"
    with tempfile.TemporaryDirectory() as scratch:
        out = chosen.out or Path(scratch) / "run"
        file = Path(scratch) / "config.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        words = ["unlearn", "--config", str(file), "--out", str(out), "--weights", str(original)]
        if "indices" in config:
            words += ["--indices", str(_saved_indices(chosen.folder, Path(scratch)))]
        with _quiet():
            run(parse(words))
        after = read_scores(out)
    different = [name for name in before if before[name] != after[name]]
    if different:
        told = ", ".join(f"{name} {before[name]} then, {after[name]} now" for name in different)
        raise GradPivotError(
            f"the second run scored differently: {told}. Compare environment.json: versions, threads or the "
            f"machine may have changed"
        )
    _print(f"The same scores, to the last digit: {_percentages(after)}")
    return 0


@run.register
def _(chosen: options.ReportOptions) -> int:
    from gradpivot.frontier.comparison import Comparison

    _write_comparison(Comparison.load(chosen.results), chosen.out or chosen.results.parent, False)
    return 0


@run.register
def _(chosen: options.CompletionOptions) -> int:
    print_completion(chosen.shell)
    return 0


def _prepare(chosen: options._Problem) -> tuple[Problem, ForgetSplit, nn.Module]:
    """The problem, what to forget, and the model to start from."""
    from gradpivot.recipes.problem import find_problem
    from gradpivot.sweep.original import train_original
    from gradpivot.weights import load_weights

    _set_threads(chosen.threads)
    # A console script, unlike "python -m", does not look for modules where the user stands.
    sys.path.insert(0, str(Path.cwd()))
    problem = find_problem(chosen.problem)
    split = _split(
        problem, classes=chosen.classes, fraction=chosen.fraction, indices=chosen.indices, seed=chosen.seed
    )
    if chosen.weights is not None:
        model = problem.model()
        load_weights(model, chosen.weights)
        return problem, split, model.eval()
    with _bar("Training the original model", _wants_bars(chosen.json)) as report:
        return problem, split, train_original(problem, split, chosen.seed, report)


def _split(
    problem: Problem,
    *,
    classes: str | None = None,
    fraction: float | None = None,
    indices: Path | None = None,
    seed: int = 0,
) -> ForgetSplit:
    from gradpivot.data.split import ForgetSplit

    if sum(given is not None for given in (classes, fraction, indices)) != 1:
        raise GradPivotError("say what to forget: one of --classes 3, --fraction 0.1 or --indices FILE")
    target = getattr(problem.task, "target_of", None)
    train, test = problem.load()
    if classes is not None:
        return ForgetSplit.by_class(train, test, _numbers(classes), target=target)
    if fraction is not None:
        return ForgetSplit.random(train, test, fraction, seed=seed, target=target)
    assert indices is not None
    try:
        chosen = [int(line) for line in indices.read_text(encoding="utf-8").split()]
    except OSError as error:
        raise GradPivotError(f"cannot read the indices in {indices}: {error.strerror}") from None
    except ValueError as error:
        raise GradPivotError(f"{indices} must hold whole numbers, one a line ({error})") from None
    return ForgetSplit.by_index(train, test, chosen, target=target)


def _numbers(text: str) -> list[int]:
    """``3``, ``3,5`` or ``0-4`` as a list."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise GradPivotError(f"cannot read the classes {text!r}; write 3, or 3,5, or 0-4") from None
    return found


def _suited(method: Any, problem: Problem) -> Any:
    """The method with the problem's own settings where the user left the defaults."""
    changes = {
        name: value
        for name, value in problem.settings.items()
        if hasattr(method, name) and getattr(method, name) is None
    }
    return dataclasses.replace(method, **changes)


def _study(
    problem: Problem, split: ForgetSplit, series: Any, chosen: Any, title: str, seed: int, command: str
) -> Comparison:
    from gradpivot.sweep.study import run_study

    _set_threads(chosen.threads)
    with _bar(f"{problem.name}, seed {seed}", _wants_bars(chosen.json)) as report:
        return run_study(
            problem,
            split,
            series,
            seed=seed,
            folder=chosen.out,
            title=title,
            report=(lambda done, total, what: report(done, total)) if report else None,
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
        _print_json(text)
    else:
        _print(console_table(comparison), f"Open {out / 'report.html'} in a browser; numbers are in {out}")


def _saved_indices(folder: Path, scratch: Path) -> Path:
    """The forgotten indices of a run as a file; the one it was started with may be gone."""
    saved = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    path = scratch / "indices.txt"
    path.write_text("\n".join(map(str, saved["forget_indices"])), encoding="utf-8")
    return path


def _keep_original(model: nn.Module, chosen: options.UnlearnOptions) -> None:
    from gradpivot.weights import save_weights

    save_weights(model, chosen.out / "original.safetensors", {"problem": chosen.problem, "seed": chosen.seed})


def _config(chosen: options.UnlearnOptions, method: Any) -> dict[str, Any]:
    """The options that decide the numbers, as 'unlearn --config' reads them; no path of this machine."""
    settings: dict[str, Any] = {
        "problem": chosen.problem,
        "classes": chosen.classes,
        "fraction": chosen.fraction,
        "indices": str(chosen.indices) if chosen.indices else None,
        "seed": chosen.seed,
        "threads": chosen.threads,
        **method.to_dict(),
    }
    optional = ("classes", "fraction", "indices")
    return {name: value for name, value in settings.items() if value is not None or name not in optional}


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


def _set_threads(threads: int) -> None:
    import torch

    if threads < 1:
        raise GradPivotError(f"--threads is {threads}; give 1 or more")
    torch.set_num_threads(threads)


def _wants_bars(as_json: bool) -> bool:
    return not as_json and sys.stderr.isatty()


@contextmanager
def _bar(title: str, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield None
        return
    from gradpivot.progress import bar

    with bar(title) as report:
        yield report


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep a nested command's report off standard output."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _percentages(scores: dict[str, Any]) -> str:
    return ", ".join(f"{name.upper()} {100 * scores[name]:.2f} %" for name in ("ra", "ua", "ta", "mia"))


def _print_result(result: Any, out: Path) -> None:
    if result.diverged:
        _print(
            f"{result.method.label} diverged at step {result.diverged['step']}: {result.diverged['reason']}.",
            f"The last finite weights are in {out}. Lower lr, set max_norm, or use objective unlikelihood.",
        )
    else:
        _print(
            result.method.label,
            f"{_percentages(result.scores.to_dict())}; {result.seconds:.1f} s. Everything is in {out}",
        )


def _print(*parts: Any) -> None:
    from rich.console import Console

    console = Console(soft_wrap=False)
    for part in parts:
        console.print(part, highlight=False, markup=False)


def _print_json(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
