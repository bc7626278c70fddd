"""How standings are put into words: heads, cells, captions and the sentence on who leads.

Values come in as fractions and seconds; here they become percent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradpivot.evaluate import find_metric, scored_metrics
from gradpivot.report.common.wording import MISSING, arrow, number, symbol
from gradpivot.results import CRITERIA, Estimate, Measure, PaperValue, Ranking, Rival, Table

__all__ = [
    "caption", "head", "interval", "name_of", "others", "paper_title", "scaled", "sentences", "spread", "unit",
]  # fmt: skip

_NAMES = {
    "delta": "Δ", "delta_svc": "Δ SVC", "hypervolume": "H", "hypervolume_svc": "H SVC",
    "hypervolume_without_mia": "H without MIA", "seconds": "Time a run", "space_seconds": "Time in all",
}  # fmt: skip
MOST_DIFFERENCES = 3
"""To how many rivals of one verdict a sentence gives the difference."""
DATASETS = {"cifar10": "CIFAR-10", "svhn": "SVHN"}


@dataclass(frozen=True)
class _Unit:
    name: str
    arrow: str
    scale: float


def _of(measure: str, kind: str) -> _Unit:
    if measure.startswith("hypervolume"):
        return _Unit("×100", "↑", 100)
    if measure.startswith("delta"):
        return _Unit("pp", "↓", 100)
    if measure.endswith("seconds"):
        return _Unit("s", "↓", 1)
    metric = find_metric(measure)
    return _Unit(metric.unit, arrow(metric, kind), metric.scale)


def name_of(measure: str) -> str:
    """What tables call a measure."""
    return _NAMES.get(measure) or find_metric(measure).symbol


def unit(measure: str) -> str:
    """``%``, ``pp``, ``×100`` or ``s``."""
    return _of(measure, "class").name


def scaled(measure: str, value: float | None) -> float | None:
    """A value in the unit it is shown in."""
    return None if value is None else value * _of(measure, "class").scale


def head(measure: str, kind: str) -> str:
    """A column's head with direction and unit: ``H ↑ (×100)``."""
    told = _of(measure, kind)
    return f"{name_of(measure)} {told.arrow}" + (f" ({told.name})" if told.name else "")


def spread(measure: str, value: Measure | Estimate | PaperValue | None) -> str:
    """The paper's form, ``94.43 (1.91)``: the mean, and in brackets the spread where there is one."""
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
    """The settings that tell dials apart: ``λ = 0.01``; a dash if there is one dial."""
    return ", ".join(f"{symbol(name)} = {value}" for name, value in settings.items()) or MISSING


def paper_title(table: Table) -> str:
    """Whose values stand beside ours."""
    name = DATASETS.get(table.dataset or "", table.dataset or "")
    return f"paper on {name}, context only" if table.context else f"paper on {name}"


def caption(table: Table) -> str:
    """What a reader must know beside the numbers."""
    sets, seeds, forgets = len(table.places), len(table.seeds), len(table.forgets)
    scores = [metric.symbol for metric in scored_metrics() if metric.variant_of is None]
    over = "classes of the mean over seeds" if forgets > 1 else "seeds"
    parts = [
        f"{sets} sets: {forgets} {'classes' if table.kind == 'class' else 'splits'} by {seeds} seeds. Mean and, in "
        f"brackets, the standard deviation over {over}.",
        f"{_joined(scores)} are those of each set's run nearest to the retrained model; Δ is its distance, H the "
        "hypervolume of the whole set, both per set and then averaged.",
        "MIA is the clean form (best single threshold on the true-label confidence), which Δ and H use; the "
        "paper's is the SVC's.",
    ]
    if table.kind != "class":
        parts.append("→ retrained: nearer to the retrained model's value is better; H is taken on 1 − the gap.")
    parts.append(
        "Diverged runs count as zeros, and not at all in the time a run. Best in bold, second best underlined "
        "(Δ and H)."
    )
    return " ".join(parts)


def sentences(table: Table, criteria: Collection[str] = tuple(CRITERIA)) -> list[str]:
    """One sentence a criterion: who leads, who is tied with it, who is behind, and whether the seeds settle it."""
    return [_sentence(ranking) for ranking in table.rankings if ranking.criterion in criteria]


def _sentence(ranking: Ranking) -> str:
    measure, best = ranking.criterion, ranking.estimate
    suffix = " s" if measure == "seconds" else ""
    within = interval(measure, best)
    sure = f"95 % interval over {best.n} sets {within}" if within != MISSING else "one set, no interval"
    leads = "leads with" if ranking.rivals else "is alone, with"
    where = "" if ranking.all_sets else f" on the {best.n} sets in common"
    parts = [
        f"{name_of(measure)}: {ranking.leader} {leads} {number(scaled(measure, best.mean))}{suffix} ({sure}){where}"
    ]
    groups: dict[str, list[Rival]] = {}
    for rival in ranking.rivals:
        groups.setdefault(rival.verdict, []).append(rival)
    if tied := groups.get("tied"):
        parts.append(f"{_joined([rival.name for rival in tied])} {_are(tied)} tied with it")
    parts += _unsettled(measure, groups.get("unsettled", ()))
    parts += [
        f"{rival.name}, run on other sets too or on fewer, is better on the {rival.difference.n} that both have "
        f"(by {number(scaled(measure, -rival.difference.mean))})"
        for rival in groups.get("ahead", ())
        if rival.difference
    ]
    if unknown := groups.get("undecided"):
        names = _joined([rival.name for rival in unknown])
        parts.append(f"too few sets to tell {names} from it")
    # Last, so that "the other 16" are all that were not named.
    parts += _behind(measure, groups.get("separated", ()))
    return "; ".join(parts) + "."


def _unsettled(measure: str, rivals: Sequence[Rival]) -> list[str]:
    """Those behind over sets, but not over seeds, by how many seeds they share with the leader."""
    by_seeds: dict[int, list[Rival]] = {}
    for rival in rivals:
        by_seeds.setdefault(rival.over_seeds.n if rival.over_seeds else 0, []).append(rival)
    return [
        f"{_joined(_first_against(measure, found))} {_are(found)} behind on these classes, but "
        + ("one seed does not settle it" if seeds == 1 else f"{_count(seeds)} seeds do not settle it")
        for seeds, found in by_seeds.items()
    ]


def _behind(measure: str, rivals: Sequence[Rival]) -> list[str]:
    if not rivals:
        return []
    if len(rivals) <= MOST_DIFFERENCES:
        return [f"{_joined(_first_against(measure, rivals))} {_are(rivals)} behind"]
    return [f"the other {len(rivals)} are behind, the nearest being {_against(measure, rivals[0])}"]


def _first_against(measure: str, rivals: Sequence[Rival]) -> list[str]:
    """All names, the first few with their difference."""
    first, rest = rivals[:MOST_DIFFERENCES], rivals[MOST_DIFFERENCES:]
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
