from __future__ import annotations

from dataclasses import dataclass

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.weighting import LossWeighted, WeightedSum, Weights
from gradpivot.loop.loop import Loop
from gradpivot.methods.method import Method
from gradpivot.methods.weighted import LossWeightedDescent, WeightedDescent
from gradpivot.tasks.classification import Classification
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import trained


@dataclass(frozen=True, kw_only=True)
class Recorded(WeightedDescent):
    """Says what it was asked; without a name it is not registered."""

    title = "Recorded"

    def weighting(self):
        asked.append("weighting")

        def weigh(gram):
            asked.append(gram)
            return Weights(0.25, 0.5)

        return weigh


asked: list = []


def test_every_step_takes_the_weights_of_the_rule():
    method = Recorded(epochs=2, max_norm=None)
    history = Loop().run(method, trained(), Classification(), MethodContract().split()).history
    assert asked.count("weighting") == 1
    assert [g.forget_norm for g in asked[1:]] == history["forget_norm"]
    assert [g.retain_norm for g in asked[1:]] == history["retain_norm"]
    assert set(history["forget_weight"]) == {0.25}
    assert set(history["retain_weight"]) == {0.5}


def test_the_shared_classes_are_no_methods():
    assert not {WeightedDescent, LossWeightedDescent, Recorded} & set(Method.registered().values())


def test_a_rule_sees_the_gradients_of_the_weighted_losses():
    seen = []

    def rule(gram):
        seen.append(gram)
        return Weights(3.0, 7.0)

    assert LossWeighted(rule, 2.0, 0.5)(Gram(1.0, 4.0, -1.0)) == (6.0, 3.5)
    assert seen == [Gram(4.0, 1.0, -1.0)]


def test_the_weights_of_the_losses_are_checked():
    with pytest.raises(GradPivotError, match="finite and ≥ 0"):
        LossWeighted(WeightedSum(), forget=-1)


@dataclass(frozen=True, kw_only=True)
class Huge(WeightedDescent):
    """Weights whose step is beyond float64."""

    title = "Huge"

    def weighting(self):
        return lambda gram: Weights(1e308, 1e308)


def test_a_step_beyond_float64_ends_the_run_as_diverged():
    outcome = Loop().run(Huge(epochs=1), trained(), Classification(), MethodContract().split())
    assert outcome.diverged is not None
    assert "overflows float64" in outcome.diverged["reason"]
