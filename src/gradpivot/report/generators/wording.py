"""How comparisons of generators are put into words: settings, shares with intervals, captions, one sentence a series.

Values come in as fractions and seconds; here they become percent.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradpivot.evaluate import Frechet, GenerationScores
from gradpivot.report.common.wording import MISSING, family, number, percent, setting, share
from gradpivot.report.standings.wording import others
from gradpivot.results import Estimate, Frontier, GeneratorSeries, GeneratorTable, Point, generation, recognised_rho

__all__ = [
    "class_words", "distance_at", "distance_head", "distance_words", "judged_words", "over_seeds", "rho_words",
    "run_words", "sentences", "shown_run", "with_interval",
]  # fmt: skip


def run_words(frontier: Frontier, point: Point) -> str:
    """Which run of its series a point is: ``γ = 0.3``; by the settings that vary where the knob does not."""
    if frontier.knob is not None and point.knob is not None:
        return setting(frontier, point)
    return family(frontier, point) or point.label


def shown_run(row: GeneratorSeries) -> str:
    """The setting of the chosen run; several if the seeds do not agree, and a dash for the original."""
    if row.role != "run":
        return MISSING
    runs = dict.fromkeys(run_words(s.frontier, s.shown) for s in row.whole)
    return " / ".join(runs)


def with_interval(scores: GenerationScores, metric: str) -> str:
    """``95.40 [93.21 to 96.93]``: a share with its 95 % Wilson interval, by the number of images."""
    low, high = scores.interval(metric)
    return f"{percent(getattr(scores, metric))} [{percent(low)} to {percent(high)}]"


def over_seeds(row: GeneratorSeries, metric: str) -> str:
    """``ua`` or ``ra`` of the chosen run: Wilson's interval for one seed, Student's over several."""
    value = row.shown(metric)
    if value is None:
        return MISSING
    if value.low is None or value.high is None:
        return with_interval(generation(row.whole[0].shown), metric)
    return f"{percent(value.mean)} [{percent(value.low)} to {percent(value.high)}]"


def distance_at(scores: GenerationScores, kind: Frechet) -> float | None:
    """The distance by the same features and numbers of images, or None."""
    wanted = (kind.features, kind.n, kind.n_reference)
    return next((f.value for f in scores.frechet if (f.features, f.n, f.n_reference) == wanted), None)


def distance_head(kind: Frechet) -> str:
    """``FD ↓ (in-domain mnist16, N = 4,500 against 54,051)``."""
    return f"FD ↓ ({kind.features}, N = {kind.n:,} against {kind.n_reference:,})"


def distance_words(value: float | None) -> str:
    """Four digits, for in-domain distances may be below 1 and Inception's are in the hundreds; or a dash."""
    return MISSING if value is None else f"{value:.4g}"


def rho_words(row: GeneratorSeries) -> str:
    """ρ(γ, still recognised), one value a dial: ``-1.00``, or ``-1.00 (λ = 0.001), -0.95 (λ = 0.0001)``."""
    parts = []
    for dial in row.dials:
        rho, beside = recognised_rho(dial), others(dial.others)
        parts.append(number(rho.mean if rho else None) + (f" ({beside})" if beside != MISSING else ""))
    return ", ".join(parts) or MISSING


def class_words(classes: Sequence[int]) -> str:
    """``class 3`` or ``classes 3 and 5``."""
    names = [str(name) for name in classes]
    return f"class {names[0]}" if len(names) == 1 else f"classes {', '.join(names[:-1])} and {names[-1]}"


def judged_words(table: GeneratorTable) -> str:
    """What every number rests on: N a class, the classifier's accuracy, the features, M."""
    finite = table.finite
    if not finite:
        return "No run stayed finite, so nothing was judged."
    right = sorted({scores.classifier_accuracy for scores in finite})
    told = f"{percent(right[0])} %" if len(right) == 1 else f"{percent(right[0])} to {percent(right[-1])} %"
    first = table.distances[0].features
    distances = "; ".join(f"{d.features}, N = {d.n:,} against {d.n_reference:,} real ones" for d in table.distances)
    return (
        f"N = {_drawn_words(finite)}. The classifier that judges them is right on {told} of real test images. FD is "
        f"the Fréchet distance of the kept classes' images, by these features: {distances}. "
        f"Fidelity = 1 − min(FD/M, 1) with M = {finite[0].rescale:g}, by {first}."
    )


def _drawn_words(judged: Sequence[GenerationScores]) -> str:
    """``50 images a class``, or ``50 images a kept class and 500 a forgotten one``."""
    made: dict[bool, set[int]] = {False: set(), True: set()}
    for scores in judged:
        for name, row in zip(scores.asked, scores.called, strict=True):
            made[name in scores.forgotten].add(sum(row))
    kept, forgotten = (_span(sorted(made[which])) for which in (False, True))
    return (
        f"{kept} images a class" if kept == forgotten else f"{kept} images a kept class and {forgotten} a forgotten one"
    )


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def sentences(table: GeneratorTable) -> list[str]:
    """One sentence a series: what it forgets and keeps where it is shown, and how evenly it follows γ."""
    return [_sentence(table, row) for row in table.series]


def _sentence(table: GeneratorTable, row: GeneratorSeries) -> str:
    ua, ra = row.shown("ua"), row.shown("ra")
    if ua is None or ra is None:
        return f"{row.name}: the run that would be shown diverged, so there is nothing to tell."
    forgotten = class_words(table.forgotten)
    are, their = ("is", "its") if len(table.forgotten) == 1 else ("are", "their")
    told = f"{row.name} at {shown_run(row)}: {forgotten} {are} recognised in {_share(1 - ua.mean)} of {their} images"
    told += f"{_before(table, 'ua')}, the kept classes in {_share(ra.mean)}"
    change = table.kept_change(row)
    if change is not None:
        told += f" ({change.mean * 100:+.1f} points)".replace("-", "−")
    rhos = [rho.mean for dial in row.dials if (rho := recognised_rho(dial))]
    if rhos:
        told += f"; ρ(γ, still recognised) {number(max(rhos))}".replace("-", "−")
        told += " at the least even of its dials" if len(row.dials) > 1 else ""
    if len(row.whole) > 1:
        told += f"; means over {len(row.whole)} seeds"
    return told + "."


def _before(table: GeneratorTable, metric: str) -> str:
    value: Estimate | None = table.original.shown(metric) if table.original else None
    return f" (original {_share(1 - value.mean)})" if value else ""


def _share(value: float) -> str:
    # Averages and 1 − UA may be off by a rounding error at the ends.
    return share(min(1.0, max(0.0, round(value, 12))))
