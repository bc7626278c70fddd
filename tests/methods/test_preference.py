from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.geometry.weighting import Weights
from gradpivot.loop.loop import Loop
from gradpivot.methods.preference import PreferenceDescent
from gradpivot.tasks.classification import Classification
from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import trained


@dataclass(frozen=True, kw_only=True)
class Recorded(PreferenceDescent):
    """Keeps what it was asked; without a name it is not registered."""

    title = "Recorded"
    asked: list = field(default_factory=list)

    def weights(self, gram, forget_loss, retain_loss):
        self.asked.append((gram, forget_loss, retain_loss))
        return Weights(0.25, 0.5)


def test_every_step_is_asked_with_its_gram_matrix_and_losses():
    method = Recorded(epochs=2, max_norm=None)
    history = Loop().run(method, trained(), Classification(), MethodContract().split()).history
    assert [forget for _, forget, _ in method.asked] == pytest.approx(history["forget_loss"])
    assert [retain for _, _, retain in method.asked] == pytest.approx(history["retain_loss"])
    assert [math.sqrt(gram.ff) for gram, _, _ in method.asked] == pytest.approx(history["forget_norm"])


@pytest.mark.parametrize("preference", [0, 1, -0.5, math.nan])
def test_a_preference_is_between_the_losses(preference):
    with pytest.raises(GradPivotError, match="preference"):
        Recorded(preference=preference)
