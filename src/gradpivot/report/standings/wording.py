"""Wording of standings: column headers, cells, captions and findings.

Values come in as fractions and seconds and become percentages here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradpivot.evaluate import find_metric, headline_metrics
from gradpivot.report.common.wording import MISSING, arrow, has_mia, number, scores_beside, symbol
from gradpivot.results import CRITERIA, Estimate, Measure, PaperValue, Ranking, Rival, Table

__all__ = [
    "caption", "head", "interval", "measure_name", "others", "paper_title", "scaled", "sentences", "spread", "unit",
]  # fmt: skip

_NAMES = {
    "delta": "Δ", "delta_svc": "Δ SVC", "hypervolume": "H", "hypervolume_svc": "H SVC",
    "hypervolume_without_mia": "H without MIA", "seconds": "Time per run", "space_seconds": "Total time",
}  # fmt: skip
_FOR_ALL = ("hypervolume", "delta", "seconds")
"""Criteria that do not compare attacks."""
MAX_DIFFERENCES = 3
"""Number of rivals per verdict for which a sentence gives the difference."""
DATASETS = {"cifar10": "CIFAR-10", "svhn": "SVHN"}


@dataclass(frozen=True)
class _Unit:
    name: str
    arrow: str
    scale: float


def _unit_of(measure: str, kind: str) -> _Unit:
    if measure.startswith("hypervolume"):
        return _Unit("×100", "↑", 100)
    if measure.startswith("delta"):
        return _Unit("pp", "↓", 100)
    if measure.endswith("seconds"):
        return _Unit("s", "↓", 1)
    metric = find_metric(measure)
    return _Unit(metric.unit, arrow(metric, kind), metric.scale)


def measure_name(measure: str) -> str:
    """Display name of a measure."""
    return _NAMES.get(measure) or find_metric(measure).symbol


def unit(measure: str) -> str:
    """``%``, ``pp``, ``×100`` or ``s``."""
    return _unit_of(measure, "class").name


def scaled(measure: str, value: float | None) -> float | None:
    """A value in its display unit."""
    return None if value is None else value * _unit_of(measure, "class").scale


def head(measure: str, kind: str) -> str:
    """Column header with direction and unit: ``H ↑ (×100)``."""
    unit = _unit_of(measure, kind)
    return f"{measure_name(measure)} {unit.arrow}" + (f" ({unit.name})" if unit.name else "")


def spread(measure: str, value: Measure | Estimate | PaperValue | None) -> str:
    """Mean and standard deviation in the paper's form, ``94.43 (1.91)``."""
    if value is None:
        return MISSING
    mean, std = (value.over_sets.mean, value.bracket) if isinstance(value, Measure) else (value.mean, value.std)
    shown = number(scaled(measure, mean))
    return shown if std is None else f"{shown} ({number(scaled(measure, std))})"


def interval(measure: str, value: Estimate | None) -> str:
    """``97.90 to 98.30``, or a dash."""
    if value is None or value.low is None or value.high is None:
        return MISSING
    return f"{number(scaled(measure, value.low))} to {number(scaled(measure, value.high))}"


def others(settings: Mapping[str, Any]) -> str:
    """The settings that distinguish dials, ``λ = 0.01``; a dash if there is only one dial."""
    return ", ".join(f"{symbol(name)} = {value}" for name, value in settings.items()) or MISSING


def paper_title(table: Table) -> str:
    """Name of the paper's experiment, ``paper on CIFAR-10``."""
    name = DATASETS.get(table.dataset or "", table.dataset or "")
    return f"paper on {name}, context only" if table.context else f"paper on {name}"


def caption(table: Table) -> str:
    """Caption of the methods table."""
    sets, seeds, forgets = len(table.places), len(table.seeds), len(table.forgets)
    scores = [metric.symbol for metric in headline_metrics(table.kind) if metric.variant_of is None]
    over = "classes of the mean over seeds" if forgets > 1 else "seeds"
    parts = [
        f"{sets} sets: {forgets} {'classes' if table.kind == 'class' else 'splits'} × {seeds} seeds. Mean, with the "
        f"standard deviation over {over} in brackets.",
        f"{_joined(scores)} are from each set's run closest to the retrained model. Δ is the distance of that run and "
        "H the hypervolume of the whole set, both averaged over sets.",
        "MIA is the threshold attack (best single threshold on the true-label confidence)"
        f"{', which Δ and H leave out here' if 'mia' in table.undetermined else ', which Δ and H use'}; the paper uses "
        "the SVC attack."
        if has_mia(table.kind)
        else scores_beside(table.kind),
    ]
    if table.kind != "class":
        parts.append("→ retrained: closer to the retrained model's value is better; H uses 1 − the gap.")
    parts.append(
        "Diverged runs count as zeros and are left out of the time per run. "
        "Best Δ and H are bold, second best underlined."
    )
    return " ".join(parts)


def sentences(table: Table, criteria: Collection[str] = tuple(CRITERIA)) -> list[str]:
    """One sentence per criterion: the leader, the methods tied with it and behind it, and whether seeds agree."""
    told = [r for r in table.rankings if r.criterion in criteria and (has_mia(table.kind) or r.criterion in _FOR_ALL)]
    return [_sentence(ranking) for ranking in told]


def _sentence(ranking: Ranking) -> str:
    measure, best = ranking.criterion, ranking.estimate
    suffix = " s" if measure == "seconds" else ""
    within = interval(measure, best)
    sure = f"95 % interval over {best.n} sets {within}" if within != MISSING else "one set, no interval"
    leads = "leads with" if ranking.rivals else "is the only method, with"
    where = "" if ranking.all_sets else f" on the {best.n} shared sets"
    mean = number(scaled(measure, best.mean))
    parts = [f"{measure_name(measure)}: {ranking.leader} {leads} {mean}{suffix} ({sure}){where}"]
    groups: dict[str, list[Rival]] = {}
    for rival in ranking.rivals:
        groups.setdefault(rival.verdict, []).append(rival)
    if tied := groups.get("tied"):
        parts.append(f"{_joined([rival.name for rival in tied])} {_are(tied)} tied with it")
    parts += _unsettled(measure, groups.get("unsettled", ()))
    parts += [
        f"{rival.name}, which ran on different sets, is better on the {rival.difference.n} shared ones "
        f"(by {number(scaled(measure, -rival.difference.mean))})"
        for rival in groups.get("ahead", ())
        if rival.difference
    ]
    if unknown := groups.get("undecided"):
        names = _joined([rival.name for rival in unknown])
        parts.append(f"too few sets to separate it from {names}")
    # Last, so that "the other 16" are all methods not named before.
    parts += _behind(measure, groups.get("separated", ()))
    return "; ".join(parts) + "."


def _unsettled(measure: str, rivals: Sequence[Rival]) -> list[str]:
    """Methods behind over sets but not over seeds, grouped by the seeds they share with the leader."""
    by_seeds: dict[int, list[Rival]] = {}
    for rival in rivals:
        by_seeds.setdefault(rival.over_seeds.n if rival.over_seeds else 0, []).append(rival)
    return [
        f"{_joined(_first_against(measure, found))} {_are(found)} behind on these classes, but "
        + ("one seed is not enough to confirm it" if seeds == 1 else f"{_count(seeds)} seeds do not confirm it")
        for seeds, found in by_seeds.items()
    ]


def _behind(measure: str, rivals: Sequence[Rival]) -> list[str]:
    if not rivals:
        return []
    if len(rivals) <= MAX_DIFFERENCES:
        return [f"{_joined(_first_against(measure, rivals))} {_are(rivals)} behind"]
    return [f"the other {len(rivals)} are behind, the closest being {_against(measure, rivals[0])}"]


def _first_against(measure: str, rivals: Sequence[Rival]) -> list[str]:
    """All names, the first few with their difference."""
    first, rest = rivals[:MAX_DIFFERENCES], rivals[MAX_DIFFERENCES:]
    return [_against(measure, rival) for rival in first] + [rival.name for rival in rest]


def _against(measure: str, rival: Rival) -> str:
    if rival.difference is None:
        return rival.name
    difference = number(scaled(measure, rival.difference.mean))
    return f"{rival.name} (difference {difference}, {interval(measure, rival.difference)})"


def _are(rivals: Sequence[Rival]) -> str:
    return "is" if len(rivals) == 1 else "are"


def _count(n: int) -> str:
    words = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[n - 2] if 2 <= n <= 9 else str(n)


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
