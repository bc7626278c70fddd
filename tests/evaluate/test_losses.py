"""The scores of a generator that nobody judges."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from gradpivot import ForgetSplit, score
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.losses import LossScorer, LossScores
from gradpivot.models.vae import VAE
from gradpivot.results.frontier import read_scores
from gradpivot.tasks.vae import Autoencoding

TASK = Autoencoding()


@pytest.fixture
def model() -> VAE:
    torch.manual_seed(0)
    return VAE(2, (4, 4), size=8).eval()


@pytest.fixture
def split() -> ForgetSplit:
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, torch.arange(40) % 4)
    return ForgetSplit.by_class(data, data, 1)


def test_the_same_model_has_the_same_losses_each_time(model, split):
    once, again = (score(model, split, task=TASK) for _ in range(2))
    assert once == again
    assert (once.n_forget, once.n_retain) == (10, 30)
    assert once.forget_loss > 0
    few = LossScorer(task=TASK, retain_scored=5)
    assert few.sizes(split) == {"forget": 5, "retain": 5}
    assert few.passes(split) == 10
    with pytest.raises(GradPivotError, match="it must be at least 1"):
        LossScorer(task=TASK, retain_scored=0).check(split)


def test_what_there_is_not_is_told(model, split):
    found = score(model, split, task=TASK)
    assert "on the forget set" in str(found)
    assert found.vector() == ()
    for ask in (lambda: found.ua, lambda: found.ra, lambda: found.vector(("ua",)), lambda: found.interval("ua")):
        with pytest.raises(GradPivotError, match="is not available: a generator predicts no labels"):
            ask()


def test_losses_go_through_json(model, split):
    found = score(model, split, task=TASK)
    assert read_scores(found.to_dict()) == LossScores.from_dict(found.to_dict()) == found


def test_a_model_that_is_not_finite_has_none(model, split):
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        LossScorer(task=TASK).scores(model, split)
    assert str(LossScorer(task=TASK).of_diverged(split)) == "no losses: the run diverged"
