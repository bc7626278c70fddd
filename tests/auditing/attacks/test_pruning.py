from __future__ import annotations

import pytest
import torch
from torch import nn

import planted
from gradpivot.auditing.attacks.pruning import PRUNE_30, PRUNE_50, PRUNE_70, prune
from gradpivot.results import judge


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7])
def test_the_smallest_weights_of_all_layers_together_go(share):
    model = nn.Sequential(nn.Linear(10, 10), nn.Conv1d(4, 5, 5))
    before = torch.cat([layer.weight.detach().flatten() for layer in model])
    biases = [layer.bias.detach().clone() for layer in model]
    prune(model, share)
    after = torch.cat([layer.weight.detach().flatten() for layer in model])
    gone = after == 0
    assert int(gone.sum()) == int(share * len(before))
    assert torch.equal(after[~gone], before[~gone])
    if gone.any():
        assert before[gone].abs().max() <= before[~gone].abs().min()
    assert all(torch.equal(layer.bias, bias) for layer, bias in zip(model, biases, strict=True))


@pytest.mark.numeric
def test_a_class_stays_unknown_to_a_retrained_model():
    for attack in (PRUNE_30, PRUNE_50, PRUNE_70):
        found = attack.run(planted.case(planted.retrained(7)))
        assert judge(found, 10) != "distinguishable"
    assert judge(PRUNE_30.run(planted.case(planted.original())), 10) == "distinguishable"
