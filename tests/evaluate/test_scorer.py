"""Who scores what: the task's own scorer, or the usual one of its kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import pytest

from gradpivot import GA, Classification, ForgetSplit, score, trace, unlearn
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate import evaluate
from gradpivot.evaluate.classifiers.scorer import ClassifierScorer
from gradpivot.evaluate.losses import LossScorer
from gradpivot.evaluate.scorer import Scorer, scorer_of
from gradpivot.tasks.vae import Autoencoding
from gradpivot.testing.problems import blobs, trained


@dataclass(frozen=True)
class Weight:
    """The length of a model's weights, which is all that this scorer looks at."""

    metrics: ClassVar[tuple[str, ...]] = ("ra", "ua")

    ra: float
    ua: float = 0.5

    def vector(self, metrics=metrics):
        return tuple(getattr(self, name) for name in metrics)

    def interval(self, metric):
        return 0.0, 1.0

    def to_dict(self):
        return asdict(self)


class Weighing(Scorer):
    metrics = ("ra", "ua")
    steerable = ("ua",)

    def scores(self, model, split):
        return Weight(float(sum(p.square().sum() for p in model.parameters())))

    def of_diverged(self, split):
        return Weight(0.0)


class Weighed(Classification):
    """A task that brings its scorer: one file, nothing registered."""

    def scorer(self):
        return Weighing()


def split() -> ForgetSplit:
    return ForgetSplit.by_class(blobs(), blobs(seed=1), 0)


def test_the_usual_scorers():
    assert scorer_of(Classification(), retain_scored=3) == ClassifierScorer(task=Classification(), retain_scored=3)
    assert scorer_of(Autoencoding(), workers=1) == LossScorer(task=Autoencoding(), workers=1)
    assert isinstance(scorer_of(Weighed()), Weighing)


def test_a_task_that_brings_its_scorer_is_scored_by_it_everywhere():
    here, method = split(), GA(epochs=1, batch_size=20)
    result = unlearn(trained(), here, method, task=Weighed())
    assert result.scores == Weighing().scores(result.model, here)
    assert result.point().scores == result.scores
    assert score(trained(), here, task=Weighed()) == Weighing().scores(trained(), here)
    met = unlearn(trained(), here, method, task=Weighed(), until="UA>=40")
    assert (met.met, met.seen.ua) == (True, 0.5)
    assert met.steered_on == {"forget": 40, "retain": 80, "validation_source": "half of test"}
    with pytest.raises(GradPivotError, match="Weighing does not provide RA; use UA"):
        unlearn(trained(), here, method, task=Weighed(), until="RA>=40")
    with pytest.raises(GradPivotError, match="a trace needs RA, UA, TA and MIA"):
        trace(trained(), here, task=Weighed())


def test_a_scorer_that_is_given_comes_before_the_tasks():
    result = unlearn(trained(), split(), GA(epochs=1, batch_size=20), scorer=Weighing())
    assert isinstance(result.scores, Weight)


def test_the_scores_are_those_of_the_evaluation():
    scorer = ClassifierScorer(task=Classification(), retain_scored=30)
    assert scorer.scores(trained(), split()) == evaluate(trained(), split(), Classification(), retain_scored=30)
    assert scorer.sizes(split()) == {"forget": 40, "retain": 30, "test": 80}
    assert scorer.examine(trained(), split()).pictures is None
    assert scorer.for_one_model().scores(trained(), split()) == scorer.scores(trained(), split())
    assert scorer.of_diverged(split()).vector() == (0, 0, 0, 0)


def test_a_scorer_that_sees_nan_first_takes_the_last_step_back():
    class Sees(Weighing):
        def scores(self, model, split):
            raise NonFiniteError("there")

    result = unlearn(trained(), split(), GA(epochs=1, batch_size=20), scorer=Sees())
    assert result.diverged["reason"] == "the outputs are not finite after the last step"
    assert result.scores == Weight(0.0)
