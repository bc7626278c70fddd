"""Console output: results and tables on standard output, progress on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.streams import escaped_json
from gradpivot.cli.torchrun import is_first
from gradpivot.evaluate import headline_metrics
from gradpivot.runtime import LOG_SECONDS, LogLines, duration

if TYPE_CHECKING:
    from rich.table import Table

    from gradpivot.evaluate import Scored
    from gradpivot.experiments import ForgetSpec, Recipe
    from gradpivot.runs import Epoch, Result, Trained
    from gradpivot.sweep import Failure, State

__all__ = [
    "bar", "counted", "quiet", "recipe_line", "recipe_table", "recipes_table", "say", "say_json",
    "say_one", "say_result", "say_shortfall", "say_sweep", "say_trained", "scores_line", "standing", "wants_progress",
    "watched_sweep", "watched_training",
]  # fmt: skip

_TRAINING = frozenset(("forget", "retain"))
"""Inputs of metrics that do not use test data."""
_FILE_WIDTH = 200
"""Minimum console width if the output is not a terminal."""


def wants_progress(as_json: bool) -> bool:
    """Whether to report progress: not beside JSON, and only in the first of several processes."""
    return not as_json and is_first()


@contextmanager
def bar(title: str, wanted: bool, in_bytes: bool = False) -> Iterator[Any]:
    """Show a progress bar during the block; yields None if it is not wanted."""
    if not wanted:
        yield None
        return
    from gradpivot.runtime import bar as progress_bar

    with progress_bar(title, in_bytes) as report:
        yield report


def counted(report: Any) -> Any:
    """Adapt a bar to a study's progress reports, which also name the current run."""
    return (lambda done, total, what: report(done, total)) if report else None


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress standard output during the block."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def scores_line(scores: Scored, kind: str) -> str:
    """Format scores of this kind of split in one line, fractions in percent."""
    from gradpivot.evaluate import GenerationScores, Scores

    if isinstance(scores, Scores):
        return scores.text(kind)
    if not isinstance(scores, GenerationScores):
        return str(scores)
    shares = [f"{name.upper()} {100 * getattr(scores, name):.2f} %" for name in ("ra", "ua")]
    return ", ".join([*shares, *(f"Fréchet distance {one}" for one in scores.frechet)])


def say_result(result: Result, original: Scored, out: Path) -> None:
    """Print the scores before and after a run, and the run's folder."""
    if result.diverged:
        _say_diverged(result.method.label, result.diverged, out, _divergence_advice(result))
        return
    say(
        f"before  {scores_line(original, result.kind)}",
        f"after   {scores_line(result.scores, result.kind)}",
        *([] if result.already_forgotten is None else [f"earlier {result.already_forgotten}"]),
        *_scored_on(result),
        f"{result.method.label}; {result.seconds:.1f} s. The run is in {out}",
    )


def say_shortfall(result: Result) -> None:
    """Print to standard error, also with --json, what the run did not do: its notes, and what it missed."""
    for text in filter(None, (result.note, result.relearned, result.missed)):
        sys.stderr.write(f"gradpivot: {text}\n")


def _scored_on(result: Result) -> list[str]:
    """A note if the scores on test data use only part of them."""
    if result.provenance["split"].get("validation") != "half of test":
        return []
    on_test = [
        m.symbol for m in headline_metrics(result.kind) if m.variant_of is None and not _TRAINING.issuperset(m.reads)
    ]
    names = f"{', '.join(on_test[:-1])} and {on_test[-1]}"
    return [f"{names} use half of the test data; the other half steered the run."]


def _say_diverged(what: str, how: Mapping[str, Any], out: Path, advice: str) -> None:
    say(f"{what} diverged at step {how['step']}: {how['reason']}.", f"The last finite weights are in {out}. {advice}")


def _divergence_advice(result: Result) -> str:
    """Advice against divergence, without what the method already does."""
    method, reason = result.method, (result.diverged or {})["reason"]
    if "the data hold" in reason:
        return "Clean these samples, or leave them out."
    advice = ["lower lr"]
    advice += ["set max_norm"] if getattr(method, "max_norm", 1) is None else []
    advice += ["use objective unlikelihood"] if getattr(method, "objective", "") == "negative_ce" else []
    return f"{', or '.join(advice).capitalize()}."


def say_trained(trained: Trained, model: str, out: Path) -> None:
    """Print the result of training; ``model`` holds the options for the problem and its model."""
    if trained.diverged:
        _say_diverged("Training", trained.diverged, out, "Lower lr, or set max_norm.")
        return
    scored = (
        f"Loss {trained.test_loss:.4f} on the test set"
        if trained.test_accuracy is None
        else f"{100 * trained.test_accuracy:.2f} % of the test set"
    )
    say(
        f"{scored} after {len(trained.epochs)} epochs; "
        f"{duration(trained.seconds)}, {trained.images_per_second:,.0f} samples/s. The model is in {out}",
        "Make it forget:",
    )
    # Not wrapped, so that it can be copied.
    sys.stdout.write(f"gradpivot unlearn cup {model} --classes 0 --weights {out / 'model.safetensors'}\n")


@contextmanager
def watched_training(
    title: str, epochs: int, as_json: bool
) -> Iterator[tuple[Callable[[int, int], None] | None, Callable[[Epoch], None] | None]]:
    """Report training progress: one line per epoch and, in a terminal, a bar; nothing with --json."""
    if as_json:
        yield None, None
        return
    if not sys.stderr.isatty():
        clock = LogLines(title)

        def write(epoch: Epoch) -> None:
            sys.stderr.write(f"{_epoch_line(epoch, epochs)}{clock.left}\n")
            sys.stderr.flush()

        yield clock, write
        return
    from gradpivot.runtime import bar_below_lines

    with bar_below_lines(title) as (report, above):
        yield report, lambda epoch: above(_epoch_line(epoch, epochs))


def _epoch_line(epoch: Epoch, epochs: int) -> str:
    scored = "" if epoch.test_accuracy is None else f", test accuracy {100 * epoch.test_accuracy:.2f} %"
    return f"epoch {epoch.number}/{epochs}: loss {epoch.train_loss:.4f}{scored}"


def say_sweep(state: State, failures: Sequence[Failure], store: Path) -> None:
    """Print the final state of a sweep, its failures and the next command."""
    line = (
        f"{state.done} of {state.total} runs are in {store} ({state.before} from before), {state.diverged} diverged, "
        f"{state.failed} failed; {duration(state.seconds)}."
    )
    if state.busy is not None and state.useful is not None:
        line += (
            f" Workers were busy {100 * state.busy:.0f} % of the time, "
            f"{100 * state.useful:.0f} % of that with unlearning and evaluation."
        )
    say(line)
    if state.damaged:
        say(f"Damaged and repeated: {', '.join(state.damaged[:10])}{' …' if len(state.damaged) > 10 else ''}")
    for _, what, why in failures[:10]:
        say(f"failed: {what}: {why}")
    if failures:
        say(f"{len(failures)} failed; the same command retries them. Worker output is in {store}/worker.log")
    say(f"Compare them: gradpivot compare {store}")


def recipes_table(recipes: Sequence[Recipe]) -> Table:
    """One line per recipe."""
    from rich.table import Table

    table = Table("recipe", "what it compares", "problem", "runs", box=None, pad_edge=False)
    for recipe in recipes:
        table.add_row(recipe.name, recipe.title, recipe.problem, f"{recipe.runs:,}")
    return table


def recipe_line(recipe: Recipe) -> str:
    """Number of runs, seeds and forget sets in one line."""
    seeds = f"{recipe.seeds} seed{'s' if recipe.seeds > 1 else ''}"
    described = f"{recipe.runs:,} runs: {seeds}, {', '.join(map(_describe_forget, recipe.forget))}"
    return f"{described}; {recipe.runs_with_references:,} with originals and references"


def recipe_table(recipe: Recipe) -> Table:
    """One line per series of a recipe."""
    from rich.table import Table

    table = Table("protocol", "series", "method", "settings", box=None, pad_edge=False)
    for series in recipe.series:
        table.add_row(series.protocol, series.name, series.method, str(len(series.methods)))
    return table


def _describe_forget(spec: ForgetSpec) -> str:
    if spec.fraction is not None:
        return f"a random {100 * spec.fraction:g} %"
    return f"classes {', '.join(map(str, spec.classes))} one at a time"


@contextmanager
def watched_sweep(title: str, as_json: bool) -> Iterator[Callable[[State], None]]:
    """Show a sweep's progress: a live line in a terminal, a line every ten seconds in a log."""
    if as_json or not sys.stderr.isatty():
        yield _report_every(LOG_SECONDS, title)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text(title), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda state: live.update(Text(f"{title}  {standing(state)}"))


def _report_every(seconds: float, title: str) -> Callable[[State], None]:
    """Write a line to standard error at most every ``seconds``."""
    last = time.monotonic()

    def write(state: State) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            sys.stderr.write(f"{title}  {standing(state)}\n")
            sys.stderr.flush()

    return write


def standing(state: State) -> str:
    """Format a sweep's state in one line."""
    left = "" if state.seconds_left is None else f", {duration(state.seconds_left)} left"
    elsewhere = f", {state.elsewhere} elsewhere" if state.elsewhere else ""
    shares = f" ({', '.join(f'{100 * share:.0f} %' for share in state.shares[:8])})" if state.shares else ""
    return (
        f"{state.done}/{state.total} done, {state.running} running{shares}{elsewhere}, {state.failed} failed, "
        f"{state.diverged} diverged{left}"
    )


def say_json(text: str) -> None:
    """Print JSON."""
    sys.stdout.write(escaped_json(text if text.endswith("\n") else f"{text}\n"))


def say_one(as_json: bool, text: str, *parts: Any) -> None:
    """Print the JSON text, or else the lines and tables."""
    if as_json:
        say_json(text)
    else:
        say(*parts)


def say(*parts: Any) -> None:
    """Print lines and tables; wraps lines only in a terminal, so that paths in logs stay intact."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _FILE_WIDTH)
    for part in parts:
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str) and not console.is_terminal)
