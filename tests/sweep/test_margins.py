from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.sweep.margins import scaled_margins
from gradpivot.tasks.classification import Classification
from gradpivot.tasks.vae import Autoencoding
from gradpivot.testing.problems import blobs, trained

DATA = blobs(20)


def test_a_margin_is_the_log_odds_of_the_true_label():
    model = trained().train()
    indices, before = np.array([5, 0, 41]), torch.get_rng_state()
    margins = scaled_margins(model, Classification(), DATA, indices)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    inputs, labels = DATA[indices]
    p = model.eval()(inputs).detach().double().softmax(1)[range(3), labels]
    assert margins == pytest.approx(torch.log(p / (1 - p)).tolist(), rel=1e-5)


def test_a_sure_model_has_finite_margins():
    """p = 1 in float64, but the margin is not infinite."""

    class Sure(nn.Linear):
        def forward(self, inputs):
            return torch.tensor([100.0, 0.0, 0.0]).expand(len(inputs), 3)

    labels = DATA.tensors[1][:3]
    found = scaled_margins(Sure(1, 1), Classification(), DATA, np.arange(3))
    expected = {0: 100 - np.log(2), 1: -100.0, 2: -100.0}
    assert found == pytest.approx([expected[int(label)] for label in labels])


def test_outputs_that_are_not_finite_have_no_margins():
    model = trained()
    with torch.no_grad():
        model.layers[0].weight.fill_(torch.nan)
    assert scaled_margins(model, Classification(), DATA, np.arange(4)) is None


def test_only_classifiers_have_margins():
    with pytest.raises(GradPivotError, match="only supports classification"):
        scaled_margins(trained(), Autoencoding(), DATA, np.arange(4))
