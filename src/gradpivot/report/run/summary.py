"""Summary of one comparison over several seeds: means with 95 % intervals, the ranking, and the γ dial.

H and Δ are computed per seed and then averaged, because a seed-averaged point is not a model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import find_metric, standing_metrics
from gradpivot.report.common.plane import PLANE
from gradpivot.results import Comparison, Frontier, Point, epsilon_to, student_quantile

__all__ = ["mean_interval", "summary", "summary_markdown"]


def summary(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Aggregate comparisons over seeds, as JSON-able fractions.

    Args:
        comparisons: One per seed, all with the same frontiers.

    Raises:
        GradPivotError: if ``comparisons`` is empty.
    """
    if not comparisons:
        raise GradPivotError("a summary needs at least one seed; give --seeds 1 or more")
    kind = comparisons[0].kind
    names = [frontier.name for frontier in comparisons[0].frontiers]
    columns = {name: [c.frontiers[i] for c in comparisons] for i, name in enumerate(names)}
    spaces = {name: seeds for name, seeds in columns.items() if not _is_dial(seeds[0])}
    return {
        "schema": "gradpivot.summary/1",
        "title": comparisons[0].title,
        "problem": dict(comparisons[0].problem),
        "seeds": [c.provenance.get("seed") for c in comparisons],
        "original": _scores([c.original for c in comparisons], kind),
        "retrained": _scores([c.retrained for c in comparisons if c.retrained], kind),
        "methods": {name: _method(seeds, comparisons) for name, seeds in spaces.items()},
        "dials": {name: _dial(seeds) for name, seeds in columns.items() if _is_dial(seeds[0])},
        "undetermined": [name for name in standing_metrics(kind) if name not in _metrics(comparisons)],
        "provenance": dict(comparisons[0].provenance),
    }


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and half-width of its 95 % Student interval; the half-width of a single value is infinite."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return {"mean": mean, "half": math.inf}
    half = student_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "half": half}


def _is_dial(frontier: Frontier) -> bool:
    """Whether the points differ only in γ: a dial, not a search space."""
    others = [{k: v for k, v in p.settings.items() if k != "gamma"} for p in frontier.points]
    return frontier.knob == "gamma" and all(other == others[0] for other in others)


def _scores(points: Sequence[Point], kind: str) -> dict[str, dict[str, float]]:
    names = standing_metrics(kind) if points else ()
    return {name: mean_interval([float(getattr(point.scores, name)) for point in points]) for name in names}


def _method(seeds: Sequence[Frontier], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    runs = [point for frontier in seeds for point in frontier.points]
    metrics = _metrics(comparisons)
    return {
        "settings": len(seeds[0].points),
        "hypervolume": mean_interval([f.hypervolume(metrics) for f in seeds]),
        "hypervolume_without_mia": mean_interval(
            [f.hypervolume(standing_metrics(f.kind, attacks=False)) for f in seeds]
        ),
        "delta": mean_interval([f.distance(metrics=metrics) for f in seeds]),
        "epsilon": mean_interval(
            [epsilon_to(f.vectors(PLANE), _best_front(c)) for f, c in zip(seeds, comparisons, strict=True)]
        ),
        "diverged": sum(point.diverged is not None for point in runs),
        "runs": len(runs),
        "seconds": statistics.fmean(point.seconds for point in runs),
    }


def _metrics(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The metrics of H and Δ: those determined for every retrained model."""
    return tuple(name for name in standing_metrics(comparisons[0].kind) if all(name in c.metrics for c in comparisons))


def _best_front(comparison: Comparison) -> list[tuple[float, ...]]:
    """(RA, UA) of all runs of all methods on one seed, for the best known front."""
    return [vector for frontier in comparison.frontiers for vector in frontier.vectors(PLANE)]


def _dial(seeds: Sequence[Frontier]) -> dict[str, Any]:
    gammas = [point.knob for point in seeds[0].points]
    ua = [[point.scores.ua for point in frontier.points] for frontier in seeds]
    ra = [[point.scores.ra for point in frontier.points] for frontier in seeds]
    jumps = [max((abs(b - a) for a, b in pairwise(row)), default=0.0) for row in ua]
    return {
        "gamma": gammas,
        "ua": [statistics.fmean(column) for column in zip(*ua, strict=True)],
        "ua_by_seed": ua,
        "ra": [statistics.fmean(column) for column in zip(*ra, strict=True)],
        "ra_least": [min(column) for column in zip(*ra, strict=True)],
        "diverged": [
            sum(point.diverged is not None for point in column)
            for column in zip(*(f.points for f in seeds), strict=True)
        ],
        "monotone_seeds": sum(row == sorted(row) for row in ua),
        "largest_jump": max(jumps),
        "ra_where_ua_reaches_95": [
            next((r for u, r in zip(us, rs, strict=True) if u >= 0.95), None) for us, rs in zip(ua, ra, strict=True)
        ],
    }


def summary_markdown(data: Mapping[str, Any]) -> str:
    """The summary in Markdown: the table, the ranking and the dials."""
    facts, environment = data["problem"], data["provenance"].get("environment", {})
    standing = tuple(data["original"])
    lines = [
        f"# {data['title']}",
        "",
        f"{len(data['seeds'])} seeds ({', '.join(map(str, data['seeds']))}), each with its own original and "
        f"retrained model; {facts['n_forget']} forget, {facts['n_retain']} retain and {facts['n_test']} test samples. "
        f"Means ± half-width of the 95 % Student interval over seeds. H × 100 (threshold MIA), Δ and ε in percentage "
        f"points. A diverged run counts as (0, 0, 0, 0)."
        + "".join(
            f" {find_metric(name).symbol} is undetermined for a retrained model (members and non-members look alike); "
            f"H and Δ leave it out."
            for name in data.get("undetermined", ())
        ),
        "",
        f"Command: `{data['provenance'].get('command')}`.",
        "",
        f"Machine: {environment.get('machine')}, {environment.get('threads')} thread(s), torch "
        f"{environment.get('packages', {}).get('torch')}; {environment.get('date')}.",
        "",
        f"| | {' | '.join(f'{find_metric(name).symbol} %' for name in standing)} |",
        "|---" * (len(standing) + 1) + "|",
        *(
            f"| {name} | " + " | ".join(_pm(data[key][m]) for m in standing) + " |"
            for name, key in (("Original", "original"), ("Retrain", "retrained"))
            if data[key]
        ),
        "",
        "## Methods",
        "",
        "| method | settings | H ↑ | H without MIA ↑ | Δ ↓ | ε to the best (RA, UA) front ↓ | diverged | s per run |",
        "|---|---|---|---|---|---|---|---|",
        *(_method_line(name, method) for name, method in _ranked(data["methods"])),
        "",
        _verdict(data["methods"]),
        "",
        "## γ dial",
    ]
    for name, dial in data["dials"].items():
        lines += ["", *_dial_lines(name, dial, len(data["seeds"]))]
    return "\n".join(lines) + "\n"


def _ranked(methods: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(methods.items(), key=lambda item: -item[1]["hypervolume"]["mean"])


def _method_line(name: str, method: Mapping[str, Any]) -> str:
    numbers = " | ".join(_pm(method[key]) for key in ("hypervolume", "hypervolume_without_mia", "delta", "epsilon"))
    return (
        f"| {name} | {method['settings']} | {numbers} | {method['diverged']} of {method['runs']} | "
        f"{method['seconds']:.2f} |"
    )


def _verdict(methods: Mapping[str, Any]) -> str:
    """The method with the largest H, and whether its interval overlaps that of the runner-up."""
    ranked = _ranked(methods)
    if len(ranked) < 2:
        return ""
    (first, best), (second, next_best) = ranked[:2]
    gap = best["hypervolume"]["mean"] - next_best["hypervolume"]["mean"]
    apart = gap > best["hypervolume"]["half"] + next_best["hypervolume"]["half"]
    how = "their intervals do not overlap" if apart else "their intervals overlap, so these seeds do not separate them"
    return f"{first} has the largest mean H, {100 * gap:.2f} above {second}; {how}."


def _dial_lines(name: str, dial: Mapping[str, Any], seeds: int) -> list[str]:
    gammas = " | ".join(f"{g:g}" for g in dial["gamma"])
    kept = [r for r in dial["ra_where_ua_reaches_95"] if r is not None]
    reached = (
        f"lowest RA where UA first reaches 95 %: {100 * min(kept):.2f} % ({len(kept)} of {seeds} seeds reach it)"
        if kept
        else "UA never reaches 95 %"
    )
    return [
        f"{name}: UA monotone in γ on {dial['monotone_seeds']} of {seeds} seeds; largest step between neighbours "
        f"{100 * dial['largest_jump']:.1f} points; {reached}.",
        "",
        f"| γ | {gammas} |",
        "|---" * (len(dial["gamma"]) + 1) + "|",
        "| UA %, mean | " + " | ".join(f"{100 * u:.1f}" for u in dial["ua"]) + " |",
        "| RA %, mean | " + " | ".join(f"{100 * r:.1f}" for r in dial["ra"]) + " |",
        "| RA %, minimum | " + " | ".join(f"{100 * r:.1f}" for r in dial["ra_least"]) + " |",
        "| diverged seeds | " + " | ".join(map(str, dial["diverged"])) + " |",
    ]


def _pm(value: Mapping[str, float]) -> str:
    if not math.isfinite(value["half"]):
        return f"{100 * value['mean']:.2f}"
    return f"{100 * value['mean']:.2f} ± {100 * value['half']:.2f}"
