"""How numbers, settings and metrics are put into words: one place, so that table, figure and page agree.

Values come in as fractions; here, and only here, they become percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradpivot.evaluate import Metric, Scores, find_metric, scored_metrics, standing_metrics
from gradpivot.results import Comparison, Frontier, Point, varying

__all__ = [
    "MISSING", "SYMBOLS", "Meaning", "arrow", "caption", "column_head", "direction", "family", "forgotten", "gap_kind",
    "is_number", "kind_of", "meanings", "number", "percent", "scaled", "setting", "share", "sizes", "standing_space",
    "symbol", "verdict_point",
]  # fmt: skip

MISSING = "–"
"""What stands where there is no value."""

SYMBOLS = {"gamma": "γ", "forget_weight": "w_f", "lr": "λ", "alpha": "α", "epsilon": "ε"}
"""The field's letters for the settings that frontiers walk along."""


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number (a results file may hold null or NaN)."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction as percent without its sign, or a dash: the unit stands in the column's head."""
    return f"{100 * value:.{digits}f}" if value is not None and math.isfinite(value) else MISSING


def share(value: float) -> str:
    """A fraction for a sentence, ``97.3 %``; what is not all is never rounded up to 100 %."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    for digits in (1, 2, 3):
        text = percent(value, digits)
        if float(text) not in (0.0, 100.0):
            break
    return f"{text} %"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number, or a dash."""
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else MISSING


def symbol(knob: str | None) -> str:
    """The letter of a setting, such as γ for ``gamma``; its name where it has none."""
    return SYMBOLS.get(knob, knob) if knob else ""


_SHARE = "share"


def setting(frontier: Frontier, point: Point) -> str:
    """Where along its knob a point lies: ``γ = 0.3``, or the run's label without a knob.

    Where other settings vary as well, as in a grid over γ and the learning rate, they are named too.
    """
    if frontier.knob is None or point.knob is None:
        return point.label
    beside = [family(frontier, point)]
    if _SHARE in point.settings:
        beside.append(f"{_SHARE} = {_plain_value(point.settings[_SHARE])}")
    return ", ".join([f"{symbol(frontier.knob)} = {point.knob:g}", *filter(None, beside)])


def family(frontier: Frontier, point: Point) -> str:
    """The settings besides the knob in which this frontier's points differ: points alike in them form a line.

    Where a point of a quick trace lies between the original and the run goes along with its knob.
    """
    along = (frontier.knob, _SHARE) if frontier.knob else ()
    names = varying(frontier.points, *along)
    return ", ".join(f"{symbol(name)} = {_plain_value(point.settings.get(name))}" for name in names)


def _plain_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def gap_kind(kind: str) -> bool:
    """Whether scores are judged by their gap to the retrained model instead of by their size."""
    return kind != "class"


def direction(kind: str) -> str:
    """The arrow of what H and Δ are taken on: up, or towards the retrained model."""
    return "→ retrained" if gap_kind(kind) else "↑"


def arrow(metric: Metric, kind: str) -> str:
    """Which way a metric is better: up, down, or towards the retrained model."""
    if metric.to_reference and gap_kind(kind):
        return direction(kind)
    return "↑" if metric.is_higher else "↓"


def column_head(metric: Metric, kind: str) -> str:
    """A metric's column head with direction and unit: ``UA ↑ (%)``."""
    return f"{metric.symbol} {arrow(metric, kind)}" + (f" ({metric.unit})" if metric.unit else "")


def scaled(metric: Metric, value: float | None) -> float | None:
    """A value in the unit it is shown in; None where it is missing."""
    return metric.scale * value if value is not None and math.isfinite(value) else None


def standing_space() -> str:
    """What H and Δ are taken on: ``(RA, UA, TA, MIA)``."""
    return f"({', '.join(find_metric(name).symbol for name in standing_metrics())})"


def forgotten(problem: Mapping[str, Any]) -> str:
    """What was forgotten, for a sentence: ``class 3``, ``classes 3 and 5`` or ``the forget set``."""
    if gap_kind(str(problem.get("kind", "class"))):
        return "the forget set"
    named = problem.get("forgotten", problem.get("classes"))
    if named is None or named in ([], ()):
        return "the forgotten class"
    names = [str(name) for name in named] if isinstance(named, (list, tuple)) else [str(named)]
    if len(names) == 1:
        return f"class {names[0]}"
    return f"classes {', '.join(names[:-1])} and {names[-1]}"


def sizes(comparison: Comparison) -> dict[str, int]:
    """N of the forget, retain and test set, from the first run that was scored."""
    points = [comparison.original, *(p for f in comparison.frontiers for p in f.points)]
    scores = next((p.classification for p in points if p.classification.n_forget), comparison.original.classification)
    return {"forget": scores.n_forget, "retain": scores.n_retain, "test": scores.n_test}


def caption(comparison: Comparison) -> str:
    """What a reader must know beside the numbers: which MIA, N of each set, what Δ is measured to."""
    n = sizes(comparison)
    parts = [
        "MIA is the clean form (best single threshold on the true-label confidence), which H and Δ use; "
        "MIA-SVC is the paper's, * = undetermined (that SVC is right on under 55 % of its own training "
        "points).",
        f"N = {n['forget']:,} forget, {n['retain']:,} retain, {n['test']:,} test.",
    ]
    if comparison.retrained is None:
        parts.append("Δ is missing: it is measured to a retrained model, and there is none here.")
    else:
        parts.append(f"Δ is the distance to the retrained model over {standing_space()}, in percentage points.")
    if gap_kind(kind_of(comparison)):
        parts.append("→ retrained: not more is better but nearer to the retrained model's value.")
    parts.append("✗ marks diverged runs, which count as (0, 0, 0, 0). Time is the mean of a run.")
    return " ".join(parts)


def kind_of(comparison: Comparison) -> str:
    """What kind of forgetting was asked for; ``class`` where nothing says so."""
    first = comparison.frontiers[0].kind if comparison.frontiers else "class"
    return str(comparison.problem.get("kind", first))


def verdict_point(scores: Scores, problem: Mapping[str, Any], retrained: Scores | None) -> str:
    """One model in words: what it forgets and what it keeps."""
    if not gap_kind(str(problem.get("kind", "class"))):
        return f"forgets {share(scores.ua)} of {forgotten(problem)} and keeps {share(scores.ra)} of the rest"
    beside = f" (retrained: {share(retrained.ua)})" if retrained else ""
    return f"errs on {share(scores.ua)} of the forget set{beside} and keeps {share(scores.ra)} of the rest"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What one number says: the questions people ask of it, answered.

    Attributes:
        name: As in the tables.
        what: What is counted.
        direction: Which way is better.
        ideal: The value of a perfect result.
        against: What it is compared to.
        n: How many samples it rests on.
    """

    name: str
    what: str
    direction: str
    ideal: str
    against: str
    n: str


def meanings(comparison: Comparison) -> list[Meaning]:
    """Every number of the tables explained, for this problem."""
    return [*_score_meanings(comparison), *_set_meanings(comparison)]


def _score_meanings(comparison: Comparison) -> list[Meaning]:
    n, kind = sizes(comparison), kind_of(comparison)
    scope = "the test set" if gap_kind(kind) else "the test set without the forgotten classes"
    return [
        Meaning(
            name=metric.symbol,
            what=metric.meaning.replace("{scope}", scope),
            direction=arrow(metric, kind),
            ideal=_ideal(metric, comparison),
            against=metric.against,
            n=f"{n[metric.share_of]:,}" if metric.share_of else MISSING,
        )
        for metric in scored_metrics()
    ]


def _ideal(metric: Metric, comparison: Comparison) -> str:
    is_fixed = not (metric.to_reference and gap_kind(kind_of(comparison)))
    if is_fixed and metric.ideal is not None:
        return f"{metric.scale * metric.ideal:g} {metric.unit}".rstrip()
    if comparison.retrained is None:
        return "the retrained model's value"
    return f"{metric.text(getattr(comparison.retrained.classification, metric.name))} (retrained)"


def _set_meanings(comparison: Comparison) -> list[Meaning]:
    runs = f"{sum(len(f.points) for f in comparison.frontiers):,} runs"
    space = "1 − |A(retrain) − A(θ)|" if gap_kind(kind_of(comparison)) else standing_space()
    return [
        Meaning(
            name="Δ", what="Distance of a method's nearest run to the retrained model, in percentage points.",
            direction="↓", ideal="0", n=runs,
            against="the retrained model" if comparison.retrained else "nothing here",
        ),
        Meaning(
            name="H", what=f"Hypervolume: how much of the space {space} the method's runs dominate together, "
            "times 100. One good run fills most of it; H without MIA leaves the attack out.",
            direction="↑", ideal="100", against="the origin", n=runs,
        ),
        Meaning(
            name="Time", what="Wall-clock of the unlearning call, preparation included, mean over runs.",
            direction="↓", ideal="0", against="training again", n=runs,
        ),
    ]  # fmt: skip
