"""The verb trace: a frontier, and the runs it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradpivot.api.shown import shown_progress
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
    """A frontier together with the runs it came from.

    Attributes:
        results: One per point, in the same order, with the models.
        original: The scores of the model before unlearning.
        problem: What was forgotten from what, for reports.
        shares: Where each point is on the line from the original (0) to the run (1), for a quick trace.
        cost: What a quick trace took, in plain runs.
        recommended: What :meth:`recommend` calls; it has the original, the split and the options of the trace.
    """

    results: tuple[Result, ...] = ()
    original: Scored
    problem: Mapping[str, Any]
    shares: tuple[float, ...] = ()
    cost: Cost | None = None
    recommended: Callable[[tuple[Result, ...]], Choice] | None = field(default=None, repr=False, compare=False)

    def recommend(self) -> Choice:
        """The point that is nearest to what a retrained model would be, chosen without one.

        Forget, retain and validation data are looked at; see :mod:`gradpivot.targets.choice`. Without validation data
        in the split, half of the test data are taken for it: score the chosen model on ``split.with_validation()`` for
        TA and MIA on data that had no part in the choice.
        """
        if self.recommended is None:
            raise GradPivotError("this trace has lost its models; trace() again, and ask what it gives")
        return self.recommended(self.results)

    def comparison(self, title: str | None = None) -> Comparison:
        """The frontier beside the original model and the reference, ready for tables, figures and the page."""
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
        """A matplotlib figure of the points in the (RA, UA) plane, saved to ``path`` if given."""
        from gradpivot.report import frontier_figure, save_figure

        figure = frontier_figure(self.comparison())
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def report(self, path: str | Path) -> None:
        """Write the interactive page, one self-contained HTML file."""
        from gradpivot.report import write_page

        write_page(self.comparison(), Path(path))

    def pick_result(self, condition: str | dict[str, float], best: str = "ra") -> Result:
        """The run behind :meth:`pick`, with its model."""
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
    """Run a method over its knob and gather the frontier; or, with ``quick``, run CUP once and score the line to it.

    Args:
        model: The trained model; it is not changed.
        split: What to forget.
        method: The method with everything but its knob set; ``CUP()`` if not given.
        gammas: The γ values for CUP; 0, 0.1, …, 1 if not given.
        values: The same for a method with another knob (``forget_weight`` of WS, ``lr`` of GA).
        reference: A retrained model's scores (or the result of running ``Retrain``), for Δ.
        quick: One run under the dial to γ = 1, and points between the original and it where the frontier moves most;
            see :mod:`gradpivot.targets.quick`. ``cost`` tells what it took.
        points: How many points a quick trace has, 11 if not given.
        checkpoint: A file for a quick trace to keep its run in; one that was killed continues from it.
        progress: Show a bar.
        **options: As for :func:`unlearn`: ``seed``, ``task``, ``factory``, ``workers``, ``retain_scored``,
            ``precision``, ``compile``, ``replicas``, ``scorer``.

    Returns:
        A frontier that knows its hypervolume, its distance to the reference, its non-dominated points and how to pick
        one (``frontier.pick("UA>=95", best="RA")``).
    """
    method = method or CUP()
    asked = {"gammas": gammas, "values": values} if quick else {"points": points, "checkpoint": checkpoint}
    if wrong := [name for name, given in asked.items() if given is not None]:
        raise GradPivotError(
            f"{wrong[0]} was given, and a quick trace chooses its own points; pass points=…, or quick=False"
            if quick
            else f"{wrong[0]} was given without quick=True; add that, or leave {wrong[0]} out"
        )
    kept = None if checkpoint is None else Path(checkpoint)
    # The run is kept until its line is scored: that may be interrupted, too.
    running = replace(Running.of(**options), checkpoint=kept, keep_checkpoint=True)
    check_traceable(running.scoring)
    prepared = Prepared.of(model, split, method, running)
    reference = _reference(reference, split, prepared)
    found: dict[str, Any]
    with shown_progress(progress, f"{method.title} over {method.active_knob}") as report:
        if quick:
            line = continuation(prepared, points=POINTS if points is None else points, progress=report)
            found = line._asdict()
            if kept is not None and running.replicas.is_first:
                kept.unlink(missing_ok=True)
        else:
            found = {"results": _runs(prepared, over_knob(method, gammas, values), report)}
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
    """Raise for models that are not scored by RA, UA, TA and MIA."""
    if scorer.metrics != standing_metrics():
        raise GradPivotError(
            "a trace is a frontier of RA, UA, TA and MIA, and a generator predicts no label; sweep it with a recipe, "
            "which judges its samples (docs/generators.md), or run unlearn() for each value"
        )


def _reference(reference: Scored | Result | None, given: ForgetSplit, prepared: Prepared) -> Scored | None:
    """The reference's scores on the data that the points are scored on: half of the test data may steer the runs."""
    split, scores = prepared.split, reference.scores if isinstance(reference, Result) else reference
    if not isinstance(scores, Scores) or split is given or scores.n_test == len(split.test_indices):
        return scores
    if isinstance(reference, Result):
        return prepared.scorer.scores(reference.model, split)
    raise GradPivotError(
        f"half of the test data steer these runs and the other {len(split.test_indices)} score them, but the "
        f"reference's scores are on {scores.n_test}; make the split with .with_validation() for both"
    )


def _runs(prepared: Prepared, methods: list[Method], report: Progress | None) -> tuple[Result, ...]:
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

    def named(result: Result, share: float) -> str:
        # A point that forgets next to nothing has no γ of its own: a run at 0 would be another model.
        name = result.method.label if result.method.to_dict()["gamma"] else result.method.title
        return f"{name}, {share:.3g} of the line"

    return [
        replace(p, label=named(r, s), settings={**p.settings, "share": s})
        for p, r, s in zip(points, results, shares, strict=True)
    ]


def over_knob(
    method: Method, gammas: Iterable[float] | None = None, values: Iterable[Any] | None = None
) -> list[Method]:
    """The method at each value of its knob; 0, 0.1, …, 1 for γ and the paper's values otherwise, if none are given.

    Raises:
        GradPivotError: if it has no knob, another one, or there is no value.
    """
    if method.active_knob is None:
        raise GradPivotError(f"{method.title} has no knob to trace; run unlearn() once instead")
    if gammas is not None and (values is not None or method.active_knob != "gamma"):
        dial = f", or put it under the dial: {type(method).__name__}(gamma=1)" if hasattr(method, "gamma") else ""
        raise GradPivotError(f"{method.title} is traced over {method.active_knob}; give values=…, not gammas{dial}")
    chosen = values if gammas is None else gammas
    if chosen is None:
        chosen = GAMMAS if method.active_knob == "gamma" else type(method).paper_space[method.active_knob]
    methods = [replace(method, **{method.active_knob: value}) for value in chosen]
    if not methods:
        raise GradPivotError(f"there is no {method.active_knob} to trace; give at least one value")
    return methods
