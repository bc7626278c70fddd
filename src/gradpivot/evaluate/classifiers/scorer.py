"""The scorer of classifiers: RA, UA, TA and MIA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradpivot.evaluate.classifiers.evaluation import Known, evaluate, scored_part
from gradpivot.evaluate.metrics.registry import standing_metrics, steering_metrics
from gradpivot.evaluate.scorer import Scorer
from gradpivot.evaluate.scores import Scores

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.runtime import Replicas
    from gradpivot.tasks import Task

__all__ = ["ClassifierScorer"]


@dataclass(frozen=True, kw_only=True)
class ClassifierScorer(Scorer):
    """Scores by predictions; the attributes are arguments of :func:`gradpivot.evaluate.evaluate`.

    Attributes:
        task: How to run a model on a batch.
        retain_scored: Take RA on this many retain samples; on all if None.
        workers: Data-loading processes.
        replicas: The processes that share the passes.
        known: Predictions of one model, shared by many splits of the same data.
    """

    task: Task
    retain_scored: int | None = None
    workers: int = 0
    replicas: Replicas | None = None
    known: Known | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that take part in H and Δ."""
        return standing_metrics()

    @property
    def steerable(self) -> tuple[str, ...]:
        """Every registered metric but variants of others."""
        return tuple(steering_metrics())

    def check(self, split: ForgetSplit) -> None:
        """Raise for a split without test data of retained classes, or a part of less than one sample."""
        scored_part(split.retain_indices, self.retain_scored)
        _ = split.test_indices

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """How many samples of each set are looked at."""
        retain = len(scored_part(split.retain_indices, self.retain_scored))
        return {"forget": len(split.forget_indices), "retain": retain, "test": len(split.test_indices)}

    def scores(self, model: nn.Module, split: ForgetSplit) -> Scores:
        """RA, UA, TA and MIA, from one forward pass over each set."""
        return evaluate(
            model,
            split,
            self.task,
            workers=self.workers,
            retain_scored=self.retain_scored,
            replicas=self.replicas,
            known=self.known,
        )

    def of_diverged(self, split: ForgetSplit) -> Scores:
        """Zeros."""
        return Scores.of_diverged()

    def of_one_model(self) -> ClassifierScorer:
        """The same, with a memory of what the model predicts."""
        return replace(self, known=Known())
