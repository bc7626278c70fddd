"""trace: run a method over its knob and collect the frontier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradpivot.api.bars import show_progress
from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Scored, Scorer, Scores, standing_metrics
from gradpivot.experiments import GAMMAS
from gradpivot.loop import Progress
from gradpivot.methods import CUP, Method
from gradpivot.results import Comparison, Frontier, Point
from gradpivot.runs import Options, Prepared, Result, Running
from gradpivot.targets import POINTS, Choice, Cost, continuation, recommend

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit

__all__ = ["Trace", "check_traceable", "over_knob", "trace"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Trace(Frontier):
    """A frontier with its runs.

    Attributes:
        results: One run per point, in the same order, with its model.
        original: Scores of the original model.
        problem: Description of the split, for reports.
        shares: Position of each point on the line from the original (0) to the run (1), for a quick trace.
        cost: Cost of a quick trace, relative to a single run.
        recommended: Implements :meth:`recommend`; holds the original, the split and the options of the trace.
    """

    results: tuple[Result, ...] = ()
    original: Scored
    problem: Mapping[str, Any]
    shares: tuple[float, ...] = ()
    cost: Cost | None = None
    recommended: Callable[[tuple[Result, ...]], Choice] | None = field(default=None, repr=False, compare=False)

    def recommend(self) -> Choice:
        """Choose the point nearest to the expected scores of a retrained model, without training one.

        Uses forget, retain and validation data; see :mod:`gradpivot.targets.choice`. If the split has no validation
        data, half of the test data serve as such. To score the chosen model on unused test data, use
        ``split.with_validation()``.

        Raises:
            GradPivotError: If the trace has no models.
        """
        if self.recommended is None:
            raise GradPivotError("this trace has no models; call trace() again and use its result")
        return self.recommended(self.results)

    def comparison(self, title: str | None = None) -> Comparison:
        """The frontier with the original and the reference, for tables, figures and the page."""
        retrained = self.reference and Point(label="Retrain", settings={}, scores=self.reference)
        return Comparison(
            title=title or f"{self.name} over {self.knob}",
            problem=self.problem,
            original=Point(label="Original", settings={}, scores=self.original),
            retrained=retrained or None,
            frontiers=[self],
            provenance=self.results[0].provenance,
        )

    def draw(self, path: str | Path | None = None) -> Any:
        """Draw the points in the (RA, UA) plane with matplotlib; saves the figure to ``path`` if given."""
        from gradpivot.report import frontier_figure, save_figure

        figure = frontier_figure(self.comparison())
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def report(self, path: str | Path) -> None:
        """Write the interactive page as one self-contained HTML file."""
        from gradpivot.report import write_page

        write_page(self.comparison(), Path(path))

    def pick_result(self, condition: str | dict[str, float], best: str = "ra") -> Result:
        """The run of the point that :meth:`pick` selects, with its model."""
        point = self.pick(condition, best)
        return next(r for p, r in zip(self.points, self.results, strict=True) if p is point)


def trace(
    model: nn.Module,
    split: ForgetSplit,
    method: Method | None = None,
    *,
    gammas: Iterable[float] | None = None,
    values: Iterable[Any] | None = None,
    reference: Scored | Result | None = None,
    quick: bool = False,
    points: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    **options: Unpack[Options],
) -> Trace:
    """Run a method over its knob and collect the frontier, or approximate it from one run with ``quick``.

    Args:
        model: The trained model; not modified.
        split: What to forget.
        method: The method, with every setting but its knob. Default: ``CUP()``.
        gammas: Values of γ. Default: 0, 0.1, …, 1.
        values: Values of another knob (``forget_weight`` of WS, ``lr`` of GA).
        reference: Scores of a retrained model, or the result of running ``Retrain``, for Δ.
        quick: Run once to γ = 1 and score points on the line from the original to the result, placed where the
            frontier changes most; see :mod:`gradpivot.targets.quick`.
        points: Number of points of a quick trace. Default: 11.
        checkpoint: Checkpoint file of a quick trace; an interrupted one resumes from it.
        progress: Whether to show a progress bar.
        **options: As for :func:`unlearn`: ``seed``, ``task``, ``factory``, ``workers``, ``retain_scored``,
            ``precision``, ``compile``, ``replicas``, ``scorer``.

    Returns:
        The frontier, with hypervolume, distance to the reference, non-dominated points and
        ``frontier.pick("UA>=95", best="RA")``.

    Raises:
        GradPivotError: If the arguments don't go together, or the method or model cannot be traced.
    """
    method = method or CUP()
    unsupported = {"gammas": gammas, "values": values} if quick else {"points": points, "checkpoint": checkpoint}
    if wrong := [name for name, given in unsupported.items() if given is not None]:
        raise GradPivotError(
            f"{wrong[0]} was given, but a quick trace chooses its own points; pass points=…, or quick=False"
            if quick
            else f"{wrong[0]} was given without quick=True; add quick=True, or drop {wrong[0]}"
        )
    kept = None if checkpoint is None else Path(checkpoint)
    # Keep the checkpoint until the line is scored, because scoring may be interrupted, too.
    running = replace(Running.of(**options), checkpoint=kept, keep_checkpoint=True)
    check_traceable(running.scoring)
    prepared = Prepared.of(model, split, method, running)
    reference = _reference_scores(reference, split, prepared)
    found: dict[str, Any]
    with show_progress(progress, f"{method.title} over {method.active_knob}") as report:
        if quick:
            line = continuation(prepared, points=POINTS if points is None else points, progress=report)
            found = line._asdict()
            if kept is not None and running.replicas.is_first:
                kept.unlink(missing_ok=True)
        else:
            found = {"results": _run_all(prepared, over_knob(method, gammas, values), report)}
            found["original"] = prepared.original()
    shares = found.get("shares", ())
    return Trace(
        name=method.title,
        method=method.name,
        knob=method.active_knob,
        points=_points(found["results"], shares),
        reference=reference,
        kind=prepared.split.kind,
        problem=prepared.split.facts(),
        recommended=partial(recommend, model, prepared.split, task=running.task, **running.looking),
        **found,
    )


def check_traceable(scorer: Scorer) -> None:
    """Raise if the models are not scored by RA, UA, TA and MIA."""
    if scorer.metrics != standing_metrics():
        raise GradPivotError(
            "a trace needs RA, UA, TA and MIA, and a generator predicts no labels; sweep it with a recipe, which "
            "judges its samples (docs/generators.md), or run unlearn() for each value"
        )


def _reference_scores(reference: Scored | Result | None, given: ForgetSplit, prepared: Prepared) -> Scored | None:
    """The reference's scores on the same data as the points; half of the test data may be used for validation."""
    split, scores = prepared.split, reference.scores if isinstance(reference, Result) else reference
    if not isinstance(scores, Scores) or split is given or scores.n_test == len(split.test_indices):
        return scores
    if isinstance(reference, Result):
        return prepared.scorer.scores(reference.model, split)
    raise GradPivotError(
        f"these runs use half of the test data for validation and are scored on the other {len(split.test_indices)}, "
        f"but the reference is scored on {scores.n_test}; use the same split.with_validation() for both"
    )


def _run_all(prepared: Prepared, methods: list[Method], report: Progress | None) -> tuple[Result, ...]:
    results = []
    for number, chosen in enumerate(methods, 1):
        results.append(Prepared.of(prepared.model, prepared.split, chosen, prepared.running).run())
        if report:
            report(number, len(methods))
    return tuple(results)


def _points(results: tuple[Result, ...], shares: tuple[float, ...]) -> list[Point]:
    points = [result.point() for result in results]
    if not shares:
        return points

    def label(result: Result, share: float) -> str:
        # A point that forgets almost nothing has no γ: a run at γ = 0 gives another model.
        name = result.method.label if result.method.to_dict()["gamma"] else result.method.title
        return f"{name}, {share:.3g} of the line"

    return [
        replace(p, label=label(r, s), settings={**p.settings, "share": s})
        for p, r, s in zip(points, results, shares, strict=True)
    ]


def over_knob(
    method: Method, gammas: Iterable[float] | None = None, values: Iterable[Any] | None = None
) -> list[Method]:
    """The method at each value of its knob. Default: 0, 0.1, …, 1 for γ, the paper's values for other knobs.

    Raises:
        GradPivotError: If the method has no knob or a different one, or there are no values.
    """
    if method.active_knob is None:
        raise GradPivotError(f"{method.title} has no knob to trace; run unlearn() once instead")
    if gammas is not None and (values is not None or method.active_knob != "gamma"):
        dial = f", or use the dial: {type(method).__name__}(gamma=1)" if hasattr(method, "gamma") else ""
        raise GradPivotError(f"{method.title} is traced over {method.active_knob}; pass values=…, not gammas{dial}")
    chosen = values if gammas is None else gammas
    if chosen is None:
        chosen = GAMMAS if method.active_knob == "gamma" else type(method).paper_space.get(method.active_knob, ())
    if not isinstance(chosen, Iterable):
        raise GradPivotError(f"the values of {method.active_knob} are {chosen!r}; pass a list, such as [0.2, 0.8]")
    methods = [replace(method, **{method.active_knob: value}) for value in chosen]
    if not methods:
        raise GradPivotError(
            f"{method.title} has no values of {method.active_knob} to trace; pass at least one (values=…, --values)"
        )
    return methods
