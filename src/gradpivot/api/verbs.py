"""The verbs: compose what is below, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Scores, evaluate
from gradpivot.loop import Progress
from gradpivot.methods import CUP, Method
from gradpivot.results import Comparison, Frontier, Point
from gradpivot.runs import Options, Result, Running, check_run, run_method, split_for
from gradpivot.runtime import Replicas
from gradpivot.targets import POINTS, Choice, Cost, Targets, continuation, recommend, unlearn_until
from gradpivot.tasks import Classification, predicts

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.tasks import Task

__all__ = ["Trace", "over_knob", "score", "trace", "unlearn"]

GAMMAS = tuple(round(0.1 * i, 1) for i in range(11))
"""0, 0.1, …, 1."""


def unlearn(
    model: nn.Module,
    split: ForgetSplit,
    method: Method | None = None,
    *,
    seed: int = 0,
    task: Task | None = None,
    factory: Callable[[], nn.Module] | None = None,
    workers: int = 0,
    progress: bool | Progress = False,
    checkpoint: str | Path | None = None,
    retain_scored: int | None = None,
    precision: str = "float32",
    compile: bool = False,
    replicas: Replicas | None = None,
    until: str | Mapping[str, float] | None = None,
    keep: str | Mapping[str, float] | None = None,
) -> Result:
    """Make a copy of ``model`` forget, and score it.

    Args:
        model: The trained model; it is not changed.
        split: What to forget; see :class:`gradpivot.ForgetSplit`.
        method: How; ``CUP()`` if not given.
        seed: Same seed, machine and thread count: the same numbers to the last digit.
        task: How to run the model on a batch; classification of (input, label) batches if not given.
        factory: Makes a newly initialised model, for ``Retrain``.
        workers: Data-loading processes for data that are not tensors; never changes a number.
        progress: Show a bar, or call a function with (steps done, steps in all).
        checkpoint: A file to keep a resumable state in; a run that was killed continues from it.
        retain_scored: Take RA on this many retain samples, the same random ones for every model; on all if not given.
        precision: ``float32``, or ``bfloat16`` or ``float16`` for autocast around the losses; weights, Gram matrices
            and scores are computed as ever.
        compile: Let ``torch.compile`` make the losses' code.
        replicas: The processes that do it together; all of the process group if there is one, and every one of them
            must then call this. ``Replicas()`` for this process alone.
        until: Forget until these conditions hold, and no more: ``{"ua": 0.95}`` (fractions, at least) or ``"UA>=95"``
            (percent), about any registered metric. CUP's γ is then set by them. The test data are divided:
            one half steers unless the split has validation data, the other gives the final scores. So does CUP on
            records (a split that is not by class), with or without this; make the split by ``.with_validation()`` to
            have other methods scored on the same.
        keep: While these hold, such as ``{"ra": 0.99}``.

    Returns:
        The new model, its scores, history and provenance. A run that goes to NaN comes back with ``diverged`` set and
        the last finite weights. With ``until`` it is a :class:`gradpivot.Targeted`: ``met``, or the condition that
        binds and the best compromise.

    Example:
        >>> result = unlearn(model, ForgetSplit.by_class(train, test, 3), CUP(gamma=0.5))
        >>> result.scores.ua, result.scores.ra
    """
    method = CUP() if method is None else method
    targets = None if until is None and keep is None else Targets.read(until, keep)
    with _progress(progress, getattr(method, "title", "")) as report:
        running = Running(
            seed=seed,
            task=task or Classification(),
            factory=factory,
            workers=workers,
            progress=report,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            retain_scored=retain_scored,
            precision=precision,
            compile=compile,
            replicas=replicas or Replicas.current(),
        )
        if targets is not None:
            return unlearn_until(model, split, method, targets, running)
        return run_method(model, split, method, running)


def score(
    model: nn.Module,
    split: ForgetSplit,
    *,
    task: Task | None = None,
    workers: int = 0,
    retain_scored: int | None = None,
    replicas: Replicas | None = None,
) -> Scores:
    """All metrics of a model as it is, from one forward pass over each set; arguments as of :func:`unlearn`."""
    return evaluate(
        model,
        split,
        task or Classification(),
        workers=workers,
        retain_scored=retain_scored,
        replicas=replicas,
    )


@dataclass(frozen=True, kw_only=True)
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
    original: Scores
    problem: Mapping[str, Any]
    shares: tuple[float, ...] = ()
    cost: Cost | None = None
    recommended: Callable[[tuple[Result, ...]], Choice] | None = field(
        default=None, repr=False, compare=False
    )

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
    reference: Scores | Result | None = None,
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
        quick: One run of CUP to γ = 1, and points between the original and it where the frontier moves most; see
            :mod:`gradpivot.targets.quick`. ``cost`` tells what it took.
        points: How many points a quick trace has, 11 if not given.
        checkpoint: A file for a quick trace to keep its run in; one that was killed continues from it.
        progress: Show a bar.
        **options: As for :func:`unlearn`: ``seed``, ``task``, ``factory``, ``workers``, ``retain_scored``,
            ``precision``, ``compile``, ``replicas``.

    Returns:
        A frontier that knows its hypervolume, its distance to the reference, its non-dominated points and how to pick
        one (``frontier.pick("UA>=95", best="RA")``).
    """
    method = method or CUP()
    asked = {"gammas": gammas, "values": values} if quick else {"points": points, "checkpoint": checkpoint}
    if wrong := [name for name, given in asked.items() if given is not None]:
        raise GradPivotError(
            f"{wrong[0]} was given, and a quick trace finds its points itself; give points=…, or quick=False"
            if quick
            else f"{wrong[0]} was given without quick=True; add that, or leave {wrong[0]} out"
        )
    kept = None if checkpoint is None else Path(checkpoint)
    # The run is kept until its line is scored: that may be interrupted, too.
    running = replace(Running.of(**options), checkpoint=kept, keep_checkpoint=True)
    if not predicts(running.task):
        raise GradPivotError(
            "a trace is a frontier of RA and UA, and a generator predicts no label; sweep it with a recipe, which "
            "judges its samples (docs/diffusion.md), or run unlearn() for each value"
        )
    check_run(model, split, method, running.task, seed=running.seed, retain_scored=running.retain_scored)
    given, split = split, split_for(method, split, running.task)
    reference = _reference(reference, given, split, running)
    found: dict[str, Any]
    with _progress(progress, f"{method.title} over {method.walked}") as report:
        if quick:
            line = continuation(
                model, split, method, running, points=POINTS if points is None else points, progress=report
            )
            found = line._asdict()
            if kept is not None and running.replicas.is_first:
                kept.unlink(missing_ok=True)
        else:
            found = {"results": _runs(model, split, over_knob(method, gammas, values), running, report)}
            found["original"] = evaluate(model, split, running.task, **running.looking)
    shares = found.get("shares", ())
    return Trace(
        name=method.title,
        method=method.name,
        knob=method.walked,
        points=_points(found["results"], shares),
        reference=reference,
        kind=split.kind,
        problem=split.facts(),
        recommended=partial(recommend, model, split, task=running.task, **running.looking),
        **found,
    )


def _reference(
    reference: Scores | Result | None, given: ForgetSplit, split: ForgetSplit, running: Running
) -> Scores | None:
    """The reference's scores on the data that the points are scored on: half of the test data may steer the runs."""
    scores = reference.scores if isinstance(reference, Result) else reference
    if scores is None or split is given or scores.n_test == len(split.test_indices):
        return scores
    if isinstance(reference, Result):
        return evaluate(reference.model, split, running.task, **running.looking)
    raise GradPivotError(
        f"half of the test data steer these runs and the other {len(split.test_indices)} score them, but the "
        f"reference's scores are on {scores.n_test}; make the split with .with_validation() for both"
    )


def _runs(
    model: nn.Module,
    split: ForgetSplit,
    methods: list[Method],
    running: Running,
    report: Progress | None,
) -> tuple[Result, ...]:
    results = []
    for number, chosen in enumerate(methods, 1):
        results.append(run_method(model, split, chosen, running))
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
    if method.walked is None:
        raise GradPivotError(f"{method.title} has no knob to trace; run unlearn() once instead")
    if gammas is not None and (values is not None or method.walked != "gamma"):
        raise GradPivotError(f"{method.title} is traced over {method.walked}; give values=…, not gammas")
    chosen = values if gammas is None else gammas
    if chosen is None:
        chosen = GAMMAS if method.walked == "gamma" else type(method).paper_space[method.walked]
    methods = [replace(method, **{method.walked: value}) for value in chosen]
    if not methods:
        raise GradPivotError(f"there is no {method.walked} to trace; give at least one value")
    return methods


@contextmanager
def _progress(wanted: bool | Progress, title: str) -> Iterator[Progress | None]:
    """A rich progress bar, the caller's own function, or nothing."""
    if not isinstance(wanted, bool):
        yield wanted
        return
    if not wanted or not Replicas.current().is_first:
        yield None
        return
    from gradpivot.runtime import bar

    with bar(title) as report:
        yield report
