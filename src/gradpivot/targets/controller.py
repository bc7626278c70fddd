"""Unlearning to a target given by ``until`` and ``keep``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import ClassifierScorer, find_metric
from gradpivot.methods import SteerableDescent
from gradpivot.runs import Prepared, Result, Running, check_run
from gradpivot.runtime import Replicas
from gradpivot.targets.conditions import Seen, Targets
from gradpivot.targets.finished import Shelf
from gradpivot.targets.looking import Looker, Looks, check_measurable, steering_split
from gradpivot.targets.scored import ScoreLooker
from gradpivot.targets.search import MOST_RUNS, GoalName, Search
from gradpivot.targets.tries import Found, Try

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate import Scorer
    from gradpivot.loop import Outcome
    from gradpivot.methods import Method
    from gradpivot.results import Condition

__all__ = [
    "Targeted", "check_steerable", "check_walkable", "forget_checkpoints", "search_for", "unlearn_until",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Targeted(Result):
    """The result of unlearning to a target. The search does not use the test data of the final ``scores``.

    Attributes:
        targets: The conditions.
        met: Whether all conditions hold on the data used by the search.
        binding: The condition that could not be met together with the others; None if all are met.
        seen: The scores of the model on the data used by the search.
        steered_on: Number of samples of each set used by the search, and the source of the validation data.
        tries: The runs of the search; empty if the original meets the target.
        cost: Cost of the search, including measurements, in plain runs of the method.
        on_test: Test scores that conditions refer to and that are measured on request, such as AUC.
    """

    targets: Targets
    met: bool
    binding: Condition | None
    seen: Seen
    steered_on: dict[str, Any]
    tries: tuple[Try, ...]
    cost: float
    on_test: dict[str, float]

    @property
    def auc(self) -> float | None:
        """AUC of the membership-inference attack on the test data, if a condition refers to it."""
        return self.on_test.get("auc")

    @property
    def asked_ua(self) -> float | None:
        """Always None; see :attr:`targets`."""
        return None

    @property
    def missed(self) -> str | None:
        """The verdict if a condition was not met, else None."""
        return None if self.met else self.verdict

    @property
    def verdict(self) -> str:
        """One line: met, or the binding condition and the best compromise."""
        scores = self.seen
        if self.met and self.is_original:
            return f"the original already meets {self.targets} ({scores}): nothing was changed"
        if self.met:
            return f"{self.targets} is met ({scores}); cost {self.cost:.2f} plain runs"
        failed = Seen(**self.provenance["target"]["binding_seen"])
        what = "is the original, unchanged:" if self.is_original else "has"
        return (
            f"{self.targets} was not met: {self.binding} binds (seen: {failed}); the best compromise "
            f"{what} {scores}; cost {self.cost:.2f} plain runs. Relax a condition, or use more epochs"
        )


def unlearn_until(prepared: Prepared, targets: Targets) -> Targeted:
    """Run a method until the targets are met, and score the new model; see :func:`gradpivot.unlearn`.

    Args:
        prepared: The run, prepared with ``searches=True``. With ``keep_checkpoint``, delete its files with
            :func:`forget_checkpoints`.
        targets: The conditions.

    Raises:
        GradPivotError: If the method trains from scratch, or a condition refers to a score that the scorer does not
            provide.
    """
    model, split, method, running = prepared.model, prepared.split, prepared.method, prepared.running
    if isinstance(method, SteerableDescent) and method.is_dialled:
        # Points on the line to each run must be good models too. The search sets γ.
        method = replace(method.to_the_end(split.kind, running.task), gamma=method.gamma)
    asked = targets.metrics_until | targets.metrics_keep
    requested: frozenset[str] = frozenset()
    if isinstance(prepared.scorer, ClassifierScorer):
        requested = frozenset(name for name in asked if find_metric(name).on_request)
        # Check both: the search uses the validation data, the final scores the test data.
        check_measurable(steering_split(split), asked, "validation", running.references)
        check_measurable(split, asked, "test", running.references)
    found, looker = search_for(model, split, method, targets, running)
    unlearned = time.perf_counter()
    scores, pictures = prepared.scorer.examine(found.model, split)
    on_test = {name: value for name, value in scores.to_dict().items() if name in requested}
    if missing := requested - on_test.keys():
        values = _classifier_looker(split, running, 1.0).look(found.model, missing).to_dict()
        on_test |= {name: values[name] for name in missing}
    if running.checkpoint is not None and not running.keep_checkpoint:
        forget_checkpoints(running.checkpoint, running.replicas)
    last = found.tries[found.place.run - 1].method if found.place.run else method
    target = _describe_search(found, targets, looker, split)
    return Targeted(
        model=found.model,
        scores=scores,
        method=last,
        history=found.history,
        seconds=found.seconds,
        evaluation_seconds=time.perf_counter() - unlearned,
        diverged=None,
        provenance={**running.provenance(split, last, model), "target": {**target, "on_test": on_test}},
        targets=targets,
        met=found.met,
        binding=found.binding,
        seen=found.place.seen,
        steered_on=target["steered_on"],
        tries=found.tries,
        cost=found.cost,
        on_test=on_test,
        pictures=pictures,
        already_forgotten=prepared.already_forgotten(found.model),
    )


def search_for(
    model: nn.Module, split: ForgetSplit, method: Method, targets: Targets, running: Running
) -> tuple[Found, Looks]:
    """The search in :func:`unlearn_until`, without access to the test data."""
    steering, shelf = steering_split(split), Shelf(running.checkpoint, running.replicas)
    check_run(model, steering, method, running.task, seed=running.seed)
    running.scoring.check(steering)
    check_walkable(method)
    plain = method.gradients(split)
    looker = _make_looker(steering, running, plain, targets)

    def run(number: int, chosen: Method, start: nn.Module) -> Outcome:
        key = f"{running.key(split, chosen, start)} target"
        finished = shelf.take(number, key, start)
        if finished is not None:
            return finished
        loop = running.loop(shelf.in_flight(number))
        # The goal of records is measured on the same data as the conditions.
        outcome = loop.run(chosen, start, running.task, replace(steering, validation=steering.test), key=key)
        shelf.put(number, key, outcome)
        return outcome

    def cost_of(chosen: Method) -> float:
        return chosen.gradients(split) / plain

    settle = partial(running.settle, method, steering, model)
    as_gamma = targets.are_about_records and method.uses_validation(split.kind, running.task)
    first_goal: GoalName | None = getattr(method, "goal", None) if as_gamma else "misclassified"
    return Search(model, method, targets, looker, run, cost_of, settle, first_goal).go(), looker


def _make_looker(split: ForgetSplit, running: Running, plain: float, targets: Targets) -> Looks:
    scorer = running.scoring
    check_steerable(targets, scorer)
    if isinstance(scorer, ClassifierScorer):
        # Predictions can be scored one set at a time; other scorers score everything at once.
        return _classifier_looker(split, running, plain)
    return ScoreLooker(scorer.for_search(), split, plain)


def _classifier_looker(split: ForgetSplit, running: Running, plain: float) -> Looker:
    return Looker(split, running.task, plain, references=running.references, **running.looking)


def check_steerable(targets: Targets, scorer: Scorer) -> None:
    """Raise if a condition refers to a score that ``scorer`` does not provide."""
    unknown = sorted((targets.metrics_until | targets.metrics_keep) - set(scorer.steerable))
    if unknown:
        known = " and ".join(map(str.upper, scorer.steerable))
        raise GradPivotError(
            f"{type(scorer).__name__} does not provide {unknown[0].upper()}; "
            + (f"use {known}" if known else "pass a scorer that does (docs/targets.md)")
        )


def check_walkable(method: Method) -> None:
    """Raise if the method trains from scratch, so that its weights cannot be interpolated with the original's."""
    if method.starts_over:
        raise GradPivotError(
            f"{method.title} trains from scratch, but a target search starts from the original's weights; use CUP or "
            f"another method that does, or run {method.title} without until"
        )


def forget_checkpoints(checkpoint: str | Path, replicas: Replicas | None = None) -> None:
    """Delete the checkpoint files of a finished search."""
    Shelf(Path(checkpoint), replicas or Replicas.current()).clear(MOST_RUNS)


def _describe_search(found: Found, targets: Targets, looker: Looks, split: ForgetSplit) -> dict[str, Any]:
    """A JSON-able description of the search, for provenance."""
    return {
        "until": list(map(str, targets.until)),
        "keep": list(map(str, targets.keep)),
        "met": found.met,
        "binding": None if found.binding is None else str(found.binding),
        "binding_seen": None if found.binding_seen is None else found.binding_seen.to_dict(),
        "run": found.place.run,
        "share": found.place.share,
        "seen": found.place.seen.to_dict(),
        "steered_on": {**looker.sizes, "validation_source": split.validation_source},
        "cost": found.cost,
        "tries": [attempt.to_dict() for attempt in found.tries],
    }
