"""What does the pivot contribute? The table of docs/dial.md: the same dial around several ways to combine gradients.

    python benchmarks/ablation.py digits --store runs/ablation-digits [--no-run] [--json] [--page docs/dial.md]

Runs the recipe ``ablation-PROBLEM`` (finished runs are not run again), then prints a row for each method: how much of
the degree asked for it reached, what it kept, and how often its steps had to be taken back. With ``--page`` the table
replaces what stands between ``<!-- ablation PROBLEM -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gradpivot.results import Record
from gradpivot.sweep import Store

PLANE = ("ra", "ua", "ta")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=("digits", "mnist", "cifar10"))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-run", action="store_true", help="only what the store has")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path, help="put the table into this page")
    asked = parser.parse_args()
    if not asked.no_run:
        command = [sys.executable, "-m", "gradpivot", "sweep", f"ablation-{asked.problem}"]
        subprocess.run([*command, "--store", asked.store, "--jobs", str(asked.jobs)], check=True)
    rows = rows_of(Store(asked.store).records())
    sys.stdout.write(json.dumps(rows, indent=1) + "\n" if asked.json else table(rows))
    if asked.page is not None:
        text = asked.page.read_text(encoding="utf-8")
        before, mark, rest = text.partition(f"<!-- ablation {asked.problem} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not (mark and end):
            raise SystemExit(f"{asked.page} has no <!-- ablation {asked.problem} --> … <!-- end -->")
        asked.page.write_text(f"{before}{mark}\n{table(rows)}\n{end}{after}", encoding="utf-8")


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each thing to forget and each method."""
    fixed = {(r.forget, r.seed, r.role): r.point.scores for r in records if r.role != "run"}
    runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.role == "run":
            runs[record.forget, record.series].append(record)
    return [
        {"forget": forget, "method": series, **_row(found, fixed)} for (forget, series), found in sorted(runs.items())
    ]


def _row(runs: Sequence[Record], fixed: dict[Any, Any]) -> dict[str, Any]:
    told = [r.provenance["telemetry"] for r in runs]

    def original(run: Record) -> Any:
        return fixed[run.forget, run.seed, "original"]

    at_one = [r for r in runs if r.point.knob == 1]
    ratios = [(t["reached"] - t["start"]) / (t["asked"] - t["start"]) for t in told if t["asked"] > t["start"]]
    return {
        "runs": len(runs),
        "not_finite": sum(r.point.diverged is not None for r in runs),
        "reached": fmean(ratios),
        "least_reached": min(ratios),
        "ra": _mean(runs, lambda r: r.point.scores.ra - original(r).ra),
        "least_ra": min(r.point.scores.ra - original(r).ra for r in runs),
        "ta": _mean(runs, lambda r: r.point.scores.ta - original(r).ta),
        "ra_at_1": _mean(at_one, lambda r: r.point.scores.ra - original(r).ra),
        "ta_at_1": _mean(at_one, lambda r: r.point.scores.ta - original(r).ta),
        "delta_at_1": _mean(at_one, lambda r: _distance(r, fixed)),
        "taken_back": fmean(t["taken_back"] for t in told),
        "conflict": fmean(t["conflict"] for t in told),
        "rose_retain": fmean(t["rose_retain"] for t in told),
    }


def _mean(runs: Sequence[Record], of: Callable[[Record], float | None]) -> list[float] | None:
    """The mean over runs, and its standard error over seeds."""
    by_seed: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        value = of(run)
        if value is None:
            return None
        by_seed[run.seed].append(value)
    means = [fmean(values) for values in by_seed.values()]
    mean = fmean(means)
    if len(means) < 2:
        return [mean]
    return [mean, (sum((m - mean) ** 2 for m in means) / (len(means) - 1) / len(means)) ** 0.5]


def _distance(run: Record, fixed: dict[Any, Any]) -> float | None:
    """Δ to the retrained model without MIA, which is chance on random subsets."""
    reference = fixed.get((run.forget, run.seed, "retrained"))
    if reference is None:
        return None
    pairs = zip(reference.vector(PLANE), run.point.scores.vector(PLANE), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown: shares in percent, differences in points."""
    head = (
        "| forget | dial around | runs | degree reached / asked % (worst) | RA − original (worst) | TA − original | "
        "at γ = 1: RA | TA | Δ w/o MIA | conflict % of steps | taken back % | L_r rose % |"
    )
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        lost = f", {row['not_finite']} not finite" if row["not_finite"] else ""
        cells = [
            row["forget"],
            row["method"],
            f"{row['runs']}{lost}",
            f"{100 * row['reached']:.1f} ({100 * row['least_reached']:.1f})",
            f"{_points(row['ra'])} ({100 * row['least_ra']:+.2f})",
            *(_points(row[name]) for name in ("ta", "ra_at_1", "ta_at_1", "delta_at_1")),
            *(f"{100 * row[name]:.1f}" for name in ("conflict", "taken_back", "rose_retain")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _points(value: list[float] | None) -> str:
    if value is None:
        return ""
    mean, *error = value
    return f"{100 * mean:+.2f}" + (f" ± {100 * error[0]:.2f}" if error else "")


if __name__ == "__main__":
    main()
