"""The scorer of classifiers: RA, UA, TA, MIA and, for records, AUC and uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradpivot.evaluate.classifiers.evaluation import PredictionCache, evaluate, fixed_subset
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
    """Scores classifiers with :func:`gradpivot.evaluate.evaluate`.

    Attributes:
        task: Runs a model on a batch.
        retain_scored: Score this many retain samples; all if None.
        workers: Data-loading processes.
        replicas: Processes that share the passes.
        cache: Predictions of one model, shared by many splits of the same data.
    """

    task: Task
    retain_scored: int | None = None
    workers: int = 0
    replicas: Replicas | None = None
    cache: PredictionCache | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics used by H and Δ."""
        return standing_metrics()

    @property
    def steerable(self) -> tuple[str, ...]:
        """All registered metrics except variants."""
        return tuple(steering_metrics())

    def check(self, split: ForgetSplit) -> None:
        """Raise for an invalid ``retain_scored``, or a split without test data of the retained classes."""
        fixed_subset(split.retain_indices, self.retain_scored)
        _ = split.test_indices

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """Number of samples scored in each set."""
        retain = len(fixed_subset(split.retain_indices, self.retain_scored))
        return {"forget": len(split.forget_indices), "retain": retain, "test": len(split.test_indices)}

    def scores(self, model: nn.Module, split: ForgetSplit) -> Scores:
        """All :func:`gradpivot.evaluate.scored_metrics`, from one forward pass over each set."""
        return evaluate(
            model,
            split,
            self.task,
            workers=self.workers,
            retain_scored=self.retain_scored,
            replicas=self.replicas,
            cache=self.cache,
        )

    def of_diverged(self, split: ForgetSplit) -> Scores:
        """All zeros, and the worst value of each further metric."""
        return Scores.of_diverged(split.kind)

    def for_one_model(self) -> ClassifierScorer:
        """The same scorer with a prediction cache."""
        return replace(self, cache=PredictionCache())
