"""Wording of numbers, settings and metrics, shared by tables, figures and pages.

Values come in as fractions and become percentages here only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradpivot.evaluate import Metric, Scores, find_metric, headline_metrics, standing_metrics
from gradpivot.results import Comparison, Frontier, Point, varying

__all__ = [
    "MISSING",
    "SYMBOLS",
    "Meaning",
    "arrow",
    "caption",
    "column_head",
    "counted_runs",
    "direction",
    "family",
    "forgotten",
    "has_mia",
    "is_number",
    "judged_by_gap",
    "meanings",
    "number",
    "percent",
    "scaled",
    "scores_beside",
    "setting",
    "share",
    "sizes",
    "standing_space",
    "symbol",
    "verdict_point",
]  # fmt: skip

MISSING = "–"
"""Shown for a missing value."""

SYMBOLS = {"gamma": "γ", "forget_weight": "w_f", "lr": "λ", "alpha": "α", "epsilon": "ε"}
"""Symbols of the settings that a frontier varies."""


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number (a results file may hold null or NaN)."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in percent without the % sign (the column header has it), or a dash."""
    return f"{100 * value:.{digits}f}" if value is not None and math.isfinite(value) else MISSING


def share(value: float) -> str:
    """A fraction for a sentence, ``97.3 %``; only exact 0 and 1 print as 0 % and 100 %."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    for digits in (1, 2, 3):
        text = percent(value, digits)
        if float(text) not in (0.0, 100.0):
            break
    return f"{text} %"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits, or a dash."""
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else MISSING


def symbol(knob: str | None) -> str:
    """The symbol of a setting, such as γ for ``gamma``, or its name if it has none."""
    return SYMBOLS.get(knob, knob) if knob else ""


_SHARE = "share"


def has_mia(kind: str) -> bool:
    """Whether tables, H and Δ for this kind of split use MIA."""
    return "mia" in standing_metrics(kind)


def scores_beside(kind: str) -> str:
    """Explanations of the headline scores that H and Δ leave out."""
    return " ".join(f"{m.symbol}: {m.meaning}" for m in headline_metrics(kind) if not m.in_standings)


def setting(frontier: Frontier, point: Point) -> str:
    """A point's knob value, ``γ = 0.3``, or the run's label if the frontier has no knob.

    Other settings that vary, as in a grid over γ and the learning rate, follow.
    """
    if frontier.knob is None or point.knob is None:
        return point.label
    beside = [family(frontier, point)]
    if _SHARE in point.settings:
        beside.append(f"{_SHARE} = {_plain_value(point.settings[_SHARE])}")
    return ", ".join([f"{symbol(frontier.knob)} = {point.knob:g}", *filter(None, beside)])


def family(frontier: Frontier, point: Point) -> str:
    """The settings other than the knob that vary within the frontier; points with equal values form one line.

    The interpolation ``share`` of a quick trace counts as part of the knob.
    """
    along = (frontier.knob, _SHARE) if frontier.knob else ()
    names = varying(frontier.points, *along)
    return ", ".join(f"{symbol(name)} = {_plain_value(point.settings.get(name))}" for name in names)


def _plain_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def judged_by_gap(kind: str) -> bool:
    """Whether scores count by their gap to the retrained model (all kinds except ``class``)."""
    return kind != "class"


def direction(kind: str) -> str:
    """The arrow of the scores behind H and Δ: up, or towards the retrained model."""
    return "→ retrained" if judged_by_gap(kind) else "↑"


def arrow(metric: Metric, kind: str) -> str:
    """The better direction of a metric: up, down, or towards its ideal or the retrained model."""
    if metric.two_sided:
        return f"→ {metric.scale * metric.low:g}"
    if metric.to_reference and judged_by_gap(kind):
        return direction(kind)
    return "↑" if metric.is_higher else "↓"


def column_head(metric: Metric, kind: str) -> str:
    """A metric's column header with direction and unit: ``UA ↑ (%)``."""
    return f"{metric.symbol} {arrow(metric, kind)}" + (f" ({metric.unit})" if metric.unit else "")


def scaled(metric: Metric, value: float | None) -> float | None:
    """A value in its display unit; None if it is missing or not finite."""
    return metric.scale * value if value is not None and math.isfinite(value) else None


def standing_space(comparison: Comparison) -> str:
    """The score space of H and Δ: ``(RA, UA, TA, MIA)``."""
    return f"({', '.join(find_metric(name).symbol for name in comparison.metrics)})"


def forgotten(problem: Mapping[str, Any]) -> str:
    """The forget set in words: ``class 3``, ``classes 3 and 5`` or ``the forget set``."""
    if judged_by_gap(str(problem.get("kind", "class"))):
        return "the forget set"
    named = problem.get("forgotten", problem.get("classes"))
    if named is None or named in ([], ()):
        return "the forgotten class"
    names = [str(name) for name in named] if isinstance(named, (list, tuple)) else [str(named)]
    if len(names) == 1:
        return f"class {names[0]}"
    return f"classes {', '.join(names[:-1])} and {names[-1]}"


def sizes(comparison: Comparison) -> dict[str, int]:
    """Sizes of the forget, retain and test sets, from the first scored run."""
    points = [comparison.original, *(p for f in comparison.frontiers for p in f.points)]
    scores = next((p.classification for p in points if p.classification.n_forget), comparison.original.classification)
    return {"forget": scores.n_forget, "retain": scores.n_retain, "test": scores.n_test}


def counted_runs(comparison: Comparison) -> str:
    """The number of runs in words: ``1 run``, ``24 runs``."""
    count = sum(len(f.points) for f in comparison.frontiers)
    return f"{count:,} run{'' if count == 1 else 's'}"


def caption(comparison: Comparison) -> str:
    """The table's caption: which MIA, the size of each set, what Δ measures."""
    n = sizes(comparison)
    attack = (
        "MIA is the threshold attack (best single threshold on the true-label confidence)"
        f"{'' if comparison.undetermined else '; H and Δ use it'}. MIA-SVC is the paper's attack; * = undetermined "
        "(members and non-members look alike: the attack is below 55 % accuracy on its own training points)."
    )
    parts = [
        attack if has_mia(comparison.kind) else scores_beside(comparison.kind),
        *(
            f"{find_metric(name).symbol} is undetermined for the retrained model; H and Δ leave it out."
            for name in comparison.undetermined
        ),
        f"N = {n['forget']:,} forget, {n['retain']:,} retain, {n['test']:,} test samples.",
    ]
    if comparison.retrained is None:
        parts.append("Δ is missing because this comparison has no retrained model.")
    else:
        parts.append(f"Δ is the distance to the retrained model in {standing_space(comparison)}, in percentage points.")
    if judged_by_gap(comparison.kind):
        parts.append("→ retrained: closer to the retrained model's value is better.")
    zeros = ", ".join("0" for _ in standing_metrics(comparison.kind))
    parts.append(f"✗ marks diverged runs; they count as ({zeros}). Time is the mean per run.")
    return " ".join(parts)


def verdict_point(scores: Scores, problem: Mapping[str, Any], retrained: Scores | None) -> str:
    """One sentence on a model: how much it forgets and how much it keeps."""
    if not judged_by_gap(str(problem.get("kind", "class"))):
        return f"forgets {share(scores.ua)} of {forgotten(problem)} and keeps {share(scores.ra)} of the rest"
    reference = f" (retrained: {share(retrained.ua)})" if retrained else ""
    return f"misclassifies {share(scores.ua)} of the forget set{reference} and keeps {share(scores.ra)} of the rest"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Explanation of one number in the tables.

    Attributes:
        name: Column name.
        what: What it measures.
        direction: Which direction is better.
        ideal: The value of a perfect result.
        against: The baseline it is compared with.
        n: Number of samples behind it.
    """

    name: str
    what: str
    direction: str
    ideal: str
    against: str
    n: str


def meanings(comparison: Comparison) -> list[Meaning]:
    """Explanations of every number in the tables, for this problem."""
    return [*_score_meanings(comparison), *_set_meanings(comparison)]


def _score_meanings(comparison: Comparison) -> list[Meaning]:
    n, kind = sizes(comparison), comparison.kind
    scope = "the test set" if judged_by_gap(kind) else "the test set without the forgotten classes"
    return [
        Meaning(
            name=metric.symbol,
            what=metric.meaning.replace("{scope}", scope),
            direction=arrow(metric, kind),
            ideal=_ideal(metric, comparison),
            against=metric.against,
            n=f"{n[metric.share_of]:,}" if metric.share_of else MISSING,
        )
        for metric in headline_metrics(comparison.kind)
    ]


def _ideal(metric: Metric, comparison: Comparison) -> str:
    is_fixed = not (metric.to_reference and judged_by_gap(comparison.kind))
    if is_fixed and metric.ideal is not None:
        return f"{metric.scale * metric.ideal:g} {metric.unit}".rstrip()
    if comparison.retrained is None:
        return "the retrained model's value"
    return f"{metric.text(getattr(comparison.retrained.classification, metric.name))} (retrained)"


def _set_meanings(comparison: Comparison) -> list[Meaning]:
    runs = counted_runs(comparison)
    space = "1 − |A(retrain) − A(θ)|" if judged_by_gap(comparison.kind) else standing_space(comparison)
    return [
        Meaning(
            name="Δ", what="Distance from the method's closest run to the retrained model, in percentage points.",
            direction="↓", ideal="0", n=runs,
            against="the retrained model" if comparison.retrained else MISSING,
        ),
        Meaning(
            name="H", what=f"Hypervolume × 100: the share of {space} that the method's runs dominate together. One "
            "good run covers most of it."
            + (" H without MIA leaves the attack out." if has_mia(comparison.kind) else ""),
            direction="↑", ideal="100", against="the origin", n=runs,
        ),
        Meaning(
            name="Time", what="Wall-clock time of one unlearning call including preparation, mean over runs.",
            direction="↓", ideal="0", against="retraining", n=runs,
        ),
    ]  # fmt: skip
