"""The report command: show a finished run, or rebuild the page of a demo or trace."""

from __future__ import annotations

from pathlib import Path

from gradpivot.cli import options
from gradpivot.cli.console import say, scores_line
from gradpivot.cli.dispatch import run
from gradpivot.cli.inputs import output_folder
from gradpivot.cli.tracing import write_comparison
from gradpivot.errors import GradPivotError

__all__: list[str] = []


@run.register
def _(chosen: options.ReportOptions) -> int:
    from gradpivot.evaluate import Scores
    from gradpivot.results import Comparison
    from gradpivot.runs import read_run

    if not chosen.results.exists() and chosen.results.suffix != ".json":
        raise GradPivotError(
            f"there is no folder {chosen.results}; 'gradpivot unlearn', 'trace' and 'demo' write one with --out"
        )
    folder = chosen.results if chosen.results.is_dir() else chosen.results.parent
    out = chosen.out or folder
    if chosen.results.name == "audit.json" or (chosen.results.is_dir() and (folder / "audit.json").exists()):
        return _rebuild_audit(folder, out)
    # A run folder may hold the results.json of an earlier report, too.
    is_run = chosen.results.is_dir() and (folder / "metrics.json").exists()
    if not chosen.results.is_dir() or ((folder / "results.json").exists() and not is_run):
        file = folder / "results.json" if chosen.results.is_dir() else chosen.results
        found = Comparison.load(file)
        with output_folder(out):
            write_comparison(found, out, False)
        return 0
    if not is_run:
        raise GradPivotError(_no_results(folder))
    comparison = read_run(folder)
    (point,) = comparison.frontiers[0].points
    if isinstance(point.scores, Scores) and not point.diverged:
        with output_folder(out):
            write_comparison(comparison, out, False)
        return 0
    say(
        f"before  {scores_line(comparison.original.scores, comparison.kind)}",
        f"after   diverged: {point.diverged['reason']}"
        if point.diverged
        else f"after   {scores_line(point.scores, comparison.kind)}",
        f"{point.label}; {point.seconds:.1f} s",
    )
    return 0


def _rebuild_audit(folder: Path, out: Path) -> int:
    from gradpivot.report import audit_lines, read_audit, write_audit

    record = read_audit(folder / "audit.json")
    with output_folder(out):
        _, page = write_audit(record, out)
    say(*audit_lines(record), f"The page is {page}")
    return 0


def _no_results(folder: Path) -> str:
    if (folder / "store.json").exists():
        return f"{folder} is a sweep's store; compare its runs with 'gradpivot compare {folder}'"
    return f"{folder} has no results; name a results.json, or a folder from demo, trace, unlearn or audit"
