"""Wording of generator comparisons: settings, shares with intervals, captions, one sentence per series.

Values come in as fractions and seconds and become percentages here.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradpivot.evaluate import Frechet, GenerationScores
from gradpivot.report.common.wording import MISSING, family, number, percent, setting, share
from gradpivot.report.standings.wording import others
from gradpivot.results import Estimate, Frontier, GeneratorSeries, GeneratorTable, Point, generation, recognised_rho

__all__ = [
    "class_names", "distance_at", "distance_head", "distance_text", "evaluation_note", "over_seeds", "rho_text",
    "run_label", "sentences", "shown_run", "with_interval",
]  # fmt: skip


def run_label(frontier: Frontier, point: Point) -> str:
    """Label of a run within its series: ``γ = 0.3``, or its varying settings if there is no knob."""
    if frontier.knob is not None and point.knob is not None:
        return setting(frontier, point)
    return family(frontier, point) or point.label


def shown_run(row: GeneratorSeries) -> str:
    """Setting of the shown run: several if seeds differ, a dash for reference models."""
    if row.role != "run":
        return MISSING
    runs = dict.fromkeys(run_label(s.frontier, s.shown) for s in row.whole)
    return " / ".join(runs)


def with_interval(scores: GenerationScores, metric: str) -> str:
    """A share with its 95 % Wilson interval over images: ``95.40 [93.21 to 96.93]``."""
    low, high = scores.interval(metric)
    return f"{percent(getattr(scores, metric))} [{percent(low)} to {percent(high)}]"


def over_seeds(row: GeneratorSeries, metric: str) -> str:
    """``ua`` or ``ra`` of the shown run, with a Wilson interval for one seed or a Student interval over several."""
    value = row.shown(metric)
    if value is None:
        return MISSING
    if value.low is None or value.high is None:
        return with_interval(generation(row.whole[0].shown), metric)
    return f"{percent(value.mean)} [{percent(value.low)} to {percent(value.high)}]"


def distance_at(scores: GenerationScores, kind: Frechet) -> float | None:
    """Fréchet distance with the same features and numbers of images, or None."""
    wanted = (kind.features, kind.n, kind.n_reference)
    return next((f.value for f in scores.frechet if (f.features, f.n, f.n_reference) == wanted), None)


def distance_head(kind: Frechet) -> str:
    """``FD ↓ (in-domain mnist16, N = 4,500 against 54,051)``."""
    return f"FD ↓ ({kind.features}, N = {kind.n:,} against {kind.n_reference:,})"


def distance_text(value: float | None) -> str:
    """Four significant digits (in-domain distances may be below 1, Inception's are in the hundreds), or a dash."""
    return MISSING if value is None else f"{value:.4g}"


def rho_text(row: GeneratorSeries) -> str:
    """ρ(γ, still recognised), one value per dial: ``-1.00``, or ``-1.00 (λ = 0.001), -0.95 (λ = 0.0001)``."""
    parts = []
    for dial in row.dials:
        rho, beside = recognised_rho(dial), others(dial.others)
        parts.append(number(rho.mean if rho else None) + (f" ({beside})" if beside != MISSING else ""))
    return ", ".join(parts) or MISSING


def class_names(classes: Sequence[int]) -> str:
    """``class 3`` or ``classes 3 and 5``."""
    names = [str(name) for name in classes]
    return f"class {names[0]}" if len(names) == 1 else f"classes {', '.join(names[:-1])} and {names[-1]}"


def evaluation_note(table: GeneratorTable) -> str:
    """How the runs were evaluated: images per class, classifier accuracy, features, M."""
    finite = table.finite
    if not finite:
        return "All runs diverged, so no samples were scored."
    right = sorted({scores.classifier_accuracy for scores in finite})
    accuracy = f"{percent(right[0])} %" if len(right) == 1 else f"{percent(right[0])} to {percent(right[-1])} %"
    first = table.distances[0].features
    distances = "; ".join(f"{d.features}, N = {d.n:,} against {d.n_reference:,} real ones" for d in table.distances)
    return (
        f"N = {_sample_counts(finite)}. The classifier's accuracy on real test images is {accuracy}. FD is the Fréchet "
        f"distance of the kept classes' images. Features: {distances}. "
        f"Fidelity = 1 − min(FD/M, 1) with M = {finite[0].rescale:g} and {first}."
    )


def _sample_counts(judged: Sequence[GenerationScores]) -> str:
    """``50 images per class``, or ``50 images per kept class and 500 per forgotten class``."""
    made: dict[bool, set[int]] = {False: set(), True: set()}
    for scores in judged:
        for name, row in zip(scores.asked, scores.called, strict=True):
            made[name in scores.forgotten].add(sum(row))
    kept, forgotten = (_span(sorted(made[which])) for which in (False, True))
    return (
        f"{kept} images per class"
        if kept == forgotten
        else f"{kept} images per kept class and {forgotten} per forgotten class"
    )


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def sentences(table: GeneratorTable) -> list[str]:
    """One sentence per series: what its shown run forgets and keeps, and how monotone it is in γ."""
    return [_sentence(table, row) for row in table.series]


def _sentence(table: GeneratorTable, row: GeneratorSeries) -> str:
    ua, ra = row.shown("ua"), row.shown("ra")
    if ua is None or ra is None:
        return f"{row.name}: the shown run diverged."
    forgotten = class_names(table.forgotten)
    are, their = ("is", "its") if len(table.forgotten) == 1 else ("are", "their")
    text = f"{row.name} at {shown_run(row)}: {forgotten} {are} recognised in {_share(1 - ua.mean)} of {their} images"
    text += f"{_before(table, 'ua')}, the kept classes in {_share(ra.mean)}"
    change = table.kept_change(row)
    if change is not None:
        text += f" ({change.mean * 100:+.1f} points)".replace("-", "−")
    rhos = [rho.mean for dial in row.dials if (rho := recognised_rho(dial))]
    if rhos:
        text += f"; ρ(γ, still recognised) {number(max(rhos))}".replace("-", "−")
        text += " on its worst dial" if len(row.dials) > 1 else ""
    if len(row.whole) > 1:
        text += f"; means over {len(row.whole)} seeds"
    return text + "."


def _before(table: GeneratorTable, metric: str) -> str:
    value: Estimate | None = table.original.shown(metric) if table.original else None
    return f" (original {_share(1 - value.mean)})" if value else ""


def _share(value: float) -> str:
    # Averages and 1 − UA may exceed [0, 1] by a rounding error.
    return share(min(1.0, max(0.0, round(value, 12))))
