"""Unlearning towards a target: ``until`` and ``keep`` in, a model and the verdict out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import ClassifierScorer, find_metric
from gradpivot.runs import Prepared, Result, Running, check_run
from gradpivot.runtime import Replicas
from gradpivot.targets.conditions import Seen, Targets
from gradpivot.targets.finished import Shelf
from gradpivot.targets.looking import Looker, Looks, check_measurable, steering_split
from gradpivot.targets.scored import ScoreLooker
from gradpivot.targets.search import MOST_RUNS, Found, Search, Try

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
    """What unlearning towards a target gave; ``scores`` are the final ones, on the test part it never looked at.

    Attributes:
        targets: What was asked for.
        met: Whether all conditions hold, by what it steered by.
        binding: The condition that could not be met beside the others; None if all are.
        seen: The scores of the model on what it was steered by.
        steered_on: How many samples of which sets these are, and where the validation data are from.
        tries: The runs on the way; empty if the original met the target.
        cost: Everything, looks included, in plain runs of the method.
        on_test: The scores on the test part that ``scores`` does not have, where a condition is about them: the AUC.
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
        """The attack's AUC against the test part, if a condition is about it."""
        return self.on_test.get("auc")

    @property
    def asked_ua(self) -> float | None:
        """None: the targets say what was asked for, and the verdict whether it was reached."""
        return None

    @property
    def missed(self) -> str | None:
        """None likewise."""
        return None

    @property
    def verdict(self) -> str:
        """One line: met, or what binds and what the best compromise is like."""
        here = self.seen
        if self.met and self.is_original:
            return f"the original meets {self.targets} already ({here}): nothing was changed"
        if self.met:
            return f"{self.targets} is met ({here}); cost {self.cost:.2f} plain runs"
        told = self.provenance["target"]["binding_seen"]
        what = "is the original, unchanged:" if self.is_original else "has"
        return (
            f"{self.targets} was not met: {self.binding} binds (seen: {Seen(**told)}); the best compromise "
            f"{what} {here}; cost {self.cost:.2f} plain runs"
        )


def unlearn_until(prepared: Prepared, targets: Targets) -> Targeted:
    """Run a method until the targets are met, and score what comes out; see :func:`gradpivot.unlearn`.

    Args:
        prepared: The run, prepared to search. Files that its ``keep_checkpoint`` leaves are deleted by
            :func:`forget_checkpoints`.
        targets: How much.

    Raises:
        GradPivotError: for a method that starts over: there is no line back to the original; for a condition on a
            score that the run's scorer does not give.
    """
    model, split, method, running = prepared.model, prepared.split, prepared.method, prepared.running
    asked = targets.metrics_until | targets.metrics_keep
    requested: set[str] = set()
    if isinstance(prepared.scorer, ClassifierScorer):
        requested = {name for name in asked if find_metric(name).on_request}
        # Before the search: one part steers, the other has the last word after all of it.
        check_measurable(steering_split(split), asked, "validation")
        check_measurable(split, asked, "test")
    found, looker = search_for(model, split, method, targets, running)
    unlearned = time.perf_counter()
    scores, pictures = prepared.scorer.examine(found.model, split)
    on_test: dict[str, float] = {}
    if requested:
        seen = Looker(split, running.task, 1.0, **running.looking).look(found.model, requested).to_dict()
        on_test = {name: seen[name] for name in requested}
    if running.checkpoint is not None and not running.keep_checkpoint:
        forget_checkpoints(running.checkpoint, running.replicas)
    last = found.tries[found.place.run - 1].method if found.place.run else method
    target = _told(found, targets, looker, split)
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
    )


def search_for(
    model: nn.Module, split: ForgetSplit, method: Method, targets: Targets, running: Running
) -> tuple[Found, Looks]:
    """The part of :func:`unlearn_until` that steers: the data of ``split.test`` are not within its reach."""
    steering, shelf = steering_split(split), Shelf(running.checkpoint, running.replicas)
    check_run(model, steering, method, running.task, seed=running.seed)
    running.scoring.check(steering)
    check_walkable(method)
    looker = _looker(steering, running, method.gradients(split), targets)

    def run(number: int, chosen: Method, start: nn.Module) -> Outcome:
        key = f"{running.key(split, chosen, start)} target"
        done = shelf.take(number, key, start)
        if done is not None:
            return done
        loop = running.loop(shelf.in_flight(number))
        outcome = loop.run(chosen, start, running.task, steering, key=key)
        shelf.put(number, key, outcome)
        return outcome

    settle = partial(running.settle, steering, method)
    return Search(model, method, targets, looker, run, settle).go(), looker


def _looker(split: ForgetSplit, running: Running, plain: float, targets: Targets) -> Looks:
    scorer = running.scoring
    check_steerable(targets, scorer)
    if isinstance(scorer, ClassifierScorer):
        # Predictions can be looked at in parts; everything else is scored as a whole.
        return Looker(split, running.task, plain, **running.looking)
    return ScoreLooker(scorer.for_search(), split, plain)


def check_steerable(targets: Targets, scorer: Scorer) -> None:
    """Raise for a condition on a score that ``scorer`` does not give."""
    unknown = sorted((targets.metrics_until | targets.metrics_keep) - set(scorer.steerable))
    if unknown:
        known = " and ".join(map(str.upper, scorer.steerable))
        raise GradPivotError(
            f"{unknown[0].upper()} is no score of {type(scorer).__name__}; "
            + (f"ask for {known}" if known else "judge samples by a scorer that gives it (docs/targets.md)")
        )


def check_walkable(method: Method) -> None:
    """Raise for a method that starts over: there is no line back to the original."""
    if method.starts_over:
        raise GradPivotError(
            f"{method.title} starts over, and a target is walked to from the original's weights; use CUP or another "
            f"method that changes them, or run {method.title} without until"
        )


def forget_checkpoints(checkpoint: str | Path, replicas: Replicas | None = None) -> None:
    """Delete what a finished search has left beside ``checkpoint``."""
    Shelf(Path(checkpoint), replicas or Replicas.current()).clear(MOST_RUNS)


def _told(found: Found, targets: Targets, looker: Looks, split: ForgetSplit) -> dict[str, Any]:
    """The search, JSON-able."""
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
        "tries": [one.to_dict() for one in found.tries],
    }
