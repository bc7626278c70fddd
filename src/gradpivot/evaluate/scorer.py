"""How the models of a task are scored: one protocol, whatever the models do."""

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

__all__ = ["Examined", "Scorer", "scorer_of"]


class Examined(NamedTuple):
    """What scoring one model gave."""

    scores: Scored
    pictures: Pictures | None = None


class Scorer(ABC):
    """Scores many models alike.

    A scorer of your own needs :meth:`scores` and :meth:`of_diverged`. Give it to :func:`gradpivot.unlearn`, or let
    :meth:`gradpivot.tasks.Task.scorer` return it.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """What Δ and H of its scores are taken on; empty for scores that no frontier can be made of."""
        return ()

    @property
    def steerable(self) -> tuple[str, ...]:
        """Which of its scores ``until`` and ``keep`` may be about."""
        return ()

    def check(self, split: ForgetSplit) -> None:  # noqa: B027 - most scorers score anything
        """Raise for what could not be scored: there may be hours of work before that."""

    @abstractmethod
    def scores(self, model: nn.Module, split: ForgetSplit) -> Scored:
        """The scores of a model as it is.

        Raises:
            NonFiniteError: if what the model gives is not finite.
        """

    @abstractmethod
    def of_diverged(self, split: ForgetSplit) -> Scored:
        """The scores that a diverged run counts with."""

    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examined:
        """The scores, with pictures of what the model draws where it draws any."""
        return Examined(self.scores(model, split))

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """How many samples of each kind are looked at."""
        return {"forget": len(split.forget_indices), "retain": len(split.retain_indices)}

    def passes(self, split: ForgetSplit) -> int:
        """Forward passes of a sample that scoring a model takes."""
        return sum(self.sizes(split).values())

    def in_search(self) -> Scorer:
        """The scorer to steer a search by, which scores many models: quicker, where that is possible."""
        return self

    def of_one_model(self) -> Scorer:
        """A scorer for one model on many splits, which may share work between them."""
        return self


def scorer_of(
    task: Task, *, retain_scored: int | None = None, workers: int = 0, replicas: Replicas | None = None
) -> Scorer:
    """The task's own scorer, else the usual one: RA, UA, TA and MIA of models that predict, losses of others."""
    from gradpivot.evaluate.classifiers.scorer import ClassifierScorer
    from gradpivot.evaluate.losses import LossScorer
    from gradpivot.tasks import check_task

    check_task(task)
    if (own := task.scorer()) is not None:
        return own
    if task.predicts:
        return ClassifierScorer(task=task, retain_scored=retain_scored, workers=workers, replicas=replicas)
    return LossScorer(task=task, retain_scored=retain_scored, workers=workers)
