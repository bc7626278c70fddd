"""Everything the command line says: results and tables on standard output, bars on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.cli.torchrun import is_first
from gradpivot.evaluate import scored_metrics

if TYPE_CHECKING:
    from rich.table import Table

    from gradpivot.evaluate import Scored
    from gradpivot.experiments import ForgetSpec, Recipe
    from gradpivot.runs import Epoch, Result, Trained
    from gradpivot.sweep import Failure, State
    from gradpivot.targets import Targeted

__all__ = [
    "bar", "counted", "duration", "quiet", "recipe_line", "recipe_table", "recipes_table", "say", "say_json",
    "say_one", "say_result", "say_sweep", "say_target", "say_trained", "scores_line", "standing", "wants_bars",
    "watched_sweep", "watched_training",
]  # fmt: skip

_WIDE = 200
"""Columns where nobody watches."""


def wants_bars(as_json: bool) -> bool:
    """Whether somebody watches: not in a pipe, a log or a script, and only one of several processes."""
    return not as_json and is_first() and sys.stderr.isatty()


@contextmanager
def bar(title: str, wanted: bool, in_bytes: bool = False) -> Iterator[Any]:
    """A progress bar for the block, or None."""
    if not wanted:
        yield None
        return
    from gradpivot.runtime import bar as progress_bar

    with progress_bar(title, in_bytes) as report:
        yield report


def counted(report: Any) -> Any:
    """A study's progress, which also tells what is under way, on a plain bar."""
    return (lambda done, total, what: report(done, total)) if report else None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a nested command's report off standard output."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def scores_line(scores: Scored) -> str:
    """Scores in one line, percent where they are shares; what has no shares says itself what it has."""
    from gradpivot.evaluate import GenerationScores, Scores

    if isinstance(scores, Scores):
        known = scores.to_dict()
        shown = (m for m in scored_metrics() if m.variant_of is None and m.name in known)
        return ", ".join(f"{metric.symbol} {metric.text(known[metric.name])}" for metric in shown)
    if not isinstance(scores, GenerationScores):
        return str(scores)
    told = [f"{name.upper()} {100 * getattr(scores, name):.2f} %" for name in ("ra", "ua")]
    return ", ".join([*told, *(f"Fréchet distance {one}" for one in scores.frechet)])


def say_result(result: Result, original: Scored, out: Path) -> None:
    """Print the scores before and after a run, and the run's folder."""
    if result.diverged:
        _say_diverged(result.method.label, result.diverged, out, _against_divergence(result))
        return
    say(
        f"before  {scores_line(original)}",
        f"after   {scores_line(result.scores)}",
        f"{result.method.label}; {result.seconds:.1f} s. Everything is in {out}",
    )
    if missed := result.missed:
        sys.stderr.write(f"gradpivot: {missed}\n")


def _say_diverged(what: str, how: Mapping[str, Any], out: Path, advice: str) -> None:
    say(f"{what} diverged at step {how['step']}: {how['reason']}.", f"The last finite weights are in {out}. {advice}")


def _against_divergence(result: Result) -> str:
    """What may help and has not been tried."""
    method, reason = result.method, (result.diverged or {})["reason"]
    if "the data hold" in reason:
        return "Clean these samples, or leave them out."
    tries = ["lower lr"]
    tries += ["set max_norm"] if getattr(method, "max_norm", 1) is None else []
    tries += ["use objective unlikelihood"] if getattr(method, "objective", "") == "negative_ce" else []
    return f"{', or '.join(tries).capitalize()}."


def say_target(result: Targeted, *, beside_json: bool) -> None:
    """Whether the target was met; if not, one line on standard error, so that it is seen beside JSON too."""
    if not result.met:
        sys.stderr.write(f"gradpivot: {result.verdict}\n")
    elif not beside_json:
        say(result.verdict)


def say_trained(trained: Trained, model: str, out: Path) -> None:
    """What training gave and where it is; ``model`` are the options that name the problem and its model."""
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
        f"{duration(trained.seconds)}, {trained.images_per_second:,.0f} samples/s. Everything is in {out}",
        "Make it forget:",
    )
    # As it is, so that it can be copied: the console would break the line.
    sys.stdout.write(f"gradpivot unlearn cup {model} --classes 0 --weights {out / 'model.safetensors'}\n")


@contextmanager
def watched_training(
    title: str, epochs: int, as_json: bool
) -> Iterator[tuple[Callable[[int, int], None] | None, Callable[[Epoch], None] | None]]:
    """Show how training goes: a line an epoch, at a terminal with a bar below them; nothing beside JSON."""
    if as_json:
        yield None, None
        return
    clock = _Clock()
    if not sys.stderr.isatty():

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


class _Clock:
    """How long is left, from what was done since the start of this process."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self.left = ""

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        before, started = self._first
        if done > before:
            seconds = (now - started) / (done - before) * (total - done)
            self.left = f", {duration(seconds)} left" if done < total else ""


def say_sweep(state: State, failures: Sequence[Failure], store: Path) -> None:
    """How a sweep ended, what could not be done, and what to do next."""
    told = (
        f"{state.done} of {state.total} runs are in {store} ({state.before} were before), {state.diverged} diverged, "
        f"{state.failed} failed; {duration(state.seconds)}."
    )
    if state.busy is not None and state.useful is not None:
        told += (
            f" Workers were busy {100 * state.busy:.0f} % of the time, "
            f"{100 * state.useful:.0f} % of that with unlearning and evaluation."
        )
    say(told)
    if state.damaged:
        say(f"Damaged and done again: {', '.join(state.damaged[:10])}{' …' if len(state.damaged) > 10 else ''}")
    for _, what, why in failures[:10]:
        say(f"failed: {what}: {why}")
    if failures:
        say(f"{len(failures)} failed; the same command tries them again. What workers said is in {store}/worker.log")
    say(f"Compare them: gradpivot compare {store}")


def recipes_table(recipes: Sequence[Recipe]) -> Table:
    """One line a recipe."""
    from rich.table import Table

    table = Table("recipe", "what it compares", "problem", "runs", box=None, pad_edge=False)
    for recipe in recipes:
        table.add_row(recipe.name, recipe.title, recipe.problem, f"{recipe.runs:,}")
    return table


def recipe_line(recipe: Recipe) -> str:
    """How much a recipe is, in one line."""
    seeds = f"{recipe.seeds} seed{'s' if recipe.seeds > 1 else ''}"
    return f"{recipe.runs:,} runs: {seeds}, {', '.join(map(_forgotten, recipe.forget))}"


def recipe_table(recipe: Recipe) -> Table:
    """A checked recipe: one line a series."""
    from rich.table import Table

    table = Table("protocol", "series", "method", "settings", box=None, pad_edge=False)
    for series in recipe.series:
        table.add_row(series.protocol, series.name, series.method, str(len(series.methods)))
    return table


def _forgotten(forgetting: ForgetSpec) -> str:
    if forgetting.fraction is not None:
        return f"a random {100 * forgetting.fraction:g} %"
    return f"classes {', '.join(map(str, forgetting.classes))} one at a time"


@contextmanager
def watched_sweep(title: str, as_json: bool) -> Iterator[Callable[[State], None]]:
    """Show how a sweep stands: a live line at a terminal, a line every half minute in a log."""
    if as_json or not sys.stderr.isatty():
        yield _every(30.0, title)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text(title), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda state: live.update(Text(f"{title}  {standing(state)}"))


def _every(seconds: float, title: str) -> Callable[[State], None]:
    last = time.monotonic()

    def tell(state: State) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            sys.stderr.write(f"{title}  {standing(state)}\n")
            sys.stderr.flush()

    return tell


def standing(state: State) -> str:
    """Done, running, failed, diverged, time left, in one line."""
    left = "" if state.seconds_left is None else f", {duration(state.seconds_left)} left"
    elsewhere = f", {state.elsewhere} elsewhere" if state.elsewhere else ""
    shares = f" ({', '.join(f'{100 * share:.0f} %' for share in state.shares[:8])})" if state.shares else ""
    return (
        f"{state.done}/{state.total} done, {state.running} running{shares}{elsewhere}, {state.failed} failed, "
        f"{state.diverged} diverged{left}"
    )


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def say_json(text: str) -> None:
    """JSON on standard output, as it is."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say_one(as_json: bool, text: str, *parts: Any) -> None:
    """The JSON text, or these lines and tables."""
    if as_json:
        say_json(text)
    else:
        say(*parts)


def say(*parts: Any) -> None:
    """Lines and tables on standard output; what is no terminal gets its lines whole, so that paths can be found."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDE)
    for part in parts:
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str) and not console.is_terminal)
