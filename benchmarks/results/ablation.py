"""What the pivot contributes: the same dial around several ways to combine the two gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from benchmarks.results.page import Page, Records
from benchmarks.results.tables import markdown, percent

from gradpivot.results import Record

__all__ = ["PAGE", "rows"]

PROBLEMS = ("digits", "mnist", "cifar10")
_PLANE = ("ra", "ua", "ta")
_HEADS = (
    "dial around", "runs", "degree reached / asked %", "RA − original, points", "TA − original, points",
    "Δ at γ = 1, points", "steps undone %", "steps that raised L_r %",
)  # fmt: skip


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each forget set and method."""
    fixed = {(r.forget, r.seed, r.role): r.point.scores for r in records if r.role != "run"}
    runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.role == "run":
            runs[record.forget, record.series].append(record)
    return [
        {"forget": forget, "method": series, **_row(found, fixed)} for (forget, series), found in sorted(runs.items())
    ]


def _row(runs: Sequence[Record], fixed: Mapping[Any, Any]) -> dict[str, Any]:
    telemetry = [r.provenance["telemetry"] for r in runs]
    ratios = [(t["reached"] - t["start"]) / (t["asked"] - t["start"]) for t in telemetry if t["asked"] > t["start"]]

    def change(metric: str) -> Callable[[Record], float | None]:
        return lambda r: getattr(r.point.scores, metric) - getattr(fixed[r.forget, r.seed, "original"], metric)

    return {
        "runs": len(runs),
        "not_finite": sum(r.point.diverged is not None for r in runs),
        "reached": fmean(ratios),
        "ra": _over_seeds(runs, change("ra")),
        "ta": _over_seeds(runs, change("ta")),
        "delta_at_1": _over_seeds([r for r in runs if r.point.knob == 1], lambda r: _distance(r, fixed)),
        "taken_back": fmean(t["taken_back"] for t in telemetry),
        "rose_retain": fmean(t["rose_retain"] for t in telemetry),
    }


def _over_seeds(runs: Sequence[Record], value: Callable[[Record], float | None]) -> list[float] | None:
    """The mean over runs, and with several seeds its standard error over them."""
    by_seed: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        found = value(run)
        if found is None:
            return None
        by_seed[run.seed].append(found)
    means = [fmean(values) for values in by_seed.values()]
    return [fmean(means), stdev(means) / len(means) ** 0.5] if len(means) > 1 else means


def _distance(run: Record, fixed: Mapping[Any, Any]) -> float | None:
    """Δ without MIA, which is chance on random subsets."""
    reference = fixed.get((run.forget, run.seed, "retrained"))
    if reference is None:
        return None
    pairs = zip(reference.vector(_PLANE), run.point.scores.vector(_PLANE), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def _table(found: Sequence[Mapping[str, Any]], *, records: bool) -> str:
    wanted = [row for row in found if row["forget"].endswith("%") == records]
    return markdown(
        _HEADS,
        (
            (row["method"], row["runs"], percent(row["reached"], 1),
             *(_points(row[name]) for name in ("ra", "ta", "delta_at_1")),
             *(percent(row[name], 1) for name in ("taken_back", "rose_retain")))
            for row in wanted
        ),
    )  # fmt: skip


def _points(value: Sequence[float] | None) -> str:
    if value is None:
        return ""
    mean, *error = value
    return f"{100 * mean:+.2f}" + (f" ± {100 * error[0]:.2f}" if error else "")


def _found(records: Records, problem: str) -> list[dict[str, Any]]:
    """The rows, from the runs of a new experiment, else from the rows that an expensive one left."""
    name = f"ablation-{problem}"
    if records.has(f"{name}.jsonl.gz"):
        return rows(records.runs(name))
    found: list[dict[str, Any]] = records.data(name)
    return found


def _values(records: Records) -> dict[str, str]:
    values = {}
    for problem in PROBLEMS:
        found = _found(records, problem)
        on_class = {row["method"]: row["rose_retain"] for row in found if not row["forget"].endswith("%")}
        values |= {
            f"{problem}_class": _table(found, records=False),
            f"{problem}_records": _table(found, records=True),
            f"{problem}_about": records.about(f"ablation-{problem}"),
            f"{problem}_rose": ", ".join(f"{name} {percent(share, 0)} %" for name, share in on_class.items()),
        }
        on_records = {row["method"]: row["reached"] for row in found if row["forget"].endswith("%")}
        values[f"{problem}_reached"] = ", ".join(f"{name} {percent(x, 0)} %" for name, x in on_records.items())
    return values


PAGE = Page(name="ablation", values=_values)
