"""The scorer protocol: how the models of a task are scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from gradpivot.evaluate.generators.pictures import Pictures
from gradpivot.evaluate.scores import Scored

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Progress
    from gradpivot.runtime import Replicas
    from gradpivot.tasks import Task

__all__ = ["Examination", "Scorer", "scorer_of"]


class Examination(NamedTuple):
    """The scores of one model, and its samples if it generates any."""

    scores: Scored
    pictures: Pictures | None = None


class Scorer(ABC):
    """Scores models of one task.

    To write your own, implement :meth:`scores` and :meth:`of_diverged`. Pass it to :func:`gradpivot.unlearn`, or
    return it from :meth:`gradpivot.tasks.Task.scorer`.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics used by Δ and H; empty if the scores cannot form a frontier."""
        return ()

    @property
    def steerable(self) -> tuple[str, ...]:
        """The metrics allowed in ``until`` and ``keep``."""
        return ()

    def check(self, split: ForgetSplit) -> None:  # noqa: B027 - most scorers score anything
        """Raise if models could not be scored on this split. Called before any work starts."""

    @abstractmethod
    def scores(self, model: nn.Module, split: ForgetSplit) -> Scored:
        """Score a model.

        Raises:
            NonFiniteError: If the model's outputs are not finite.
        """

    @abstractmethod
    def of_diverged(self, split: ForgetSplit) -> Scored:
        """The scores assigned to a diverged run."""

    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examination:
        """Score a model and, for a generator, keep pictures of its samples."""
        return Examination(self.scores(model, split))

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """Number of samples scored in each set."""
        return {"forget": len(split.forget_indices), "retain": len(split.retain_indices)}

    def passes(self, split: ForgetSplit) -> int:
        """Number of per-sample forward passes that scoring a model takes."""
        return sum(self.sizes(split).values())

    def for_search(self) -> Scorer:
        """A cheaper scorer for searches, which score many models."""
        return self

    def for_one_model(self) -> Scorer:
        """A scorer for one model on many splits, which may share work between splits."""
        return self


def scorer_of(
    task: Task, *, retain_scored: int | None = None, workers: int = 0, replicas: Replicas | None = None
) -> Scorer:
    """The task's own scorer, else the default: :class:`Scores` for classifiers, losses for other models."""
    from gradpivot.evaluate.classifiers.scorer import ClassifierScorer
    from gradpivot.evaluate.losses import LossScorer
    from gradpivot.tasks import check_task

    check_task(task)
    if (own := task.scorer()) is not None:
        return own
    if task.predicts:
        return ClassifierScorer(task=task, retain_scored=retain_scored, workers=workers, replicas=replicas)
    return LossScorer(task=task, retain_scored=retain_scored, workers=workers)
