"""Reproduce docs/results: run the experiments, keep their records, and write every page and figure from them.

python -m benchmarks.results                 everything; finished runs are kept, so that it can be killed
python -m benchmarks.results toy vae         these experiments
python -m benchmarks.results --no-run        only the pages and figures, from the committed records
python -m benchmarks.results --quick         small sizes, into runs/results-quick; docs/results stays as it was
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import (
    ablation,
    audit,
    cifar10_class,
    control,
    depth,
    generators,
    headline,
    methods,
    records,
    speed,
    targets,
)
from benchmarks.results.experiments import EXPERIMENTS, Place
from benchmarks.results.page import Page, Records

from gradpivot.report import save_figure
from gradpivot.runtime import environment

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PAGES: tuple[Page, ...] = (
    headline.PAGE, control.PAGE, audit.PAGE, depth.PAGE, records.PAGE, targets.PAGE, ablation.PAGE, *methods.PAGES,
    cifar10_class.PAGE, *generators.PAGES, speed.PAGE,
)  # fmt: skip


def main() -> None:
    """Run what is asked for, then write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="small sizes, into runs/results-quick")
    parser.add_argument("--no-run", action="store_true", help="only write pages and figures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes of a sweep")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.experiments if name not in EXPERIMENTS]:
        parser.error(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    os.chdir(ROOT)
    out = Path("runs/results-quick") if chosen.quick else Path("docs/results")
    place = Place(
        runs=Path("runs/results-quick/runs" if chosen.quick else "runs/results"), records=out / "records",
        figures=out / "figures", quick=chosen.quick, jobs=chosen.jobs,
    )  # fmt: skip
    for folder in (place.runs, place.records, place.figures):
        folder.mkdir(parents=True, exist_ok=True)
    if not chosen.no_run:
        run(chosen.experiments, place)
    folders = (place.records, RESULTS / "records") if chosen.quick else (place.records,)
    write_pages(Records(*folders), out)


def run(names: Sequence[str], place: Place) -> None:
    """Run the named experiments, or all; each leaves its records and a line on where they come from."""
    commit = _commit(place.quick)
    wanted = [name for name in EXPERIMENTS if name in names] if names else list(EXPERIMENTS)
    for name in wanted:
        experiment = EXPERIMENTS[name]
        if place.quick and not experiment.quick:
            _say(f"{name}: no quick size; its committed records stand")
            continue
        _say(f"{name}: about {'a minute' if place.quick else experiment.cost}")
        if experiment.data and not place.quick:
            place.gradpivot("data", "get", *experiment.data)
        experiment.run(name, place)
        _note(place.records / "about.json", name, commit)


def _commit(quick: bool) -> str:
    """The commit the numbers describe.

    Raises:
        SystemExit: if the source differs from it: its results would describe no commit.
    """
    changed = _git("status", "--porcelain", "--", "src", "benchmarks")
    if changed and not quick:
        raise SystemExit("src or benchmarks have uncommitted changes; commit them, so that results describe a commit")
    return _git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def _note(file: Path, name: str, commit: str) -> None:
    facts = environment()
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[name] = {
        "commit": commit, "date": facts["date"], "machine": facts["machine"], "torch": facts["packages"]["torch"],
    }  # fmt: skip
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def write_pages(records: Records, out: Path) -> None:
    """Write every page and figure."""
    from benchmarks.results.pictures import benefit_figure

    for page in PAGES:
        (out / f"{page.name}.md").write_text(page.text(records), encoding="utf-8")
        for file, figure in page.figures(records).items():
            save_figure(figure, out / "figures" / file)
    problems = {name: records.runs(found) for name, found in control.PROBLEMS.items()}
    save_figure(benefit_figure(problems, records.runs("digits")), out / "figures" / "benefit.png")
    _say(f"{len(PAGES)} pages are in {out}")


def _say(line: str) -> None:
    sys.stderr.write(f"results: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
