from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from gradpivot import Classification
from gradpivot.methods.parts.distillation import divergence, frozen_copy
from gradpivot.testing.problems import blobs, trained


@given(seed=st.integers(0, 2**31), temperature=st.floats(0.2, 20))
@settings(max_examples=30, deadline=None)
def test_divergence_against_its_definition(seed, temperature):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(7, 5))
    mine, theirs = (nn.Linear(5, 4).double() for _ in range(2))
    with torch.no_grad():
        for layer in (mine, theirs):
            layer.weight.copy_(torch.from_numpy(random.normal(size=(4, 5))))
    q, p = (
        torch.softmax(layer(torch.from_numpy(inputs)) / temperature, 1).detach().numpy() for layer in (mine, theirs)
    )
    batch = torch.from_numpy(inputs), torch.zeros(7, dtype=torch.long)
    found = divergence(Classification(), mine, theirs, batch, temperature)
    assert found.item() == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=1e-9, abs=1e-12)
    found.backward()
    assert all(weight.grad is None for weight in theirs.parameters())


def test_a_class_that_the_teacher_rules_out_costs_nothing():
    class Certain(nn.Module):
        def forward(self, inputs):
            return torch.tensor([[0.0, 0.0, -torch.inf]]).expand(len(inputs), 3)

    loss = divergence(Classification(), trained(), Certain(), blobs().tensors)
    assert bool(loss.isfinite())


def test_a_frozen_copy_stays():
    model = trained().train()
    teacher = frozen_copy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert not teacher.training
    assert not any(weight.requires_grad for weight in teacher.parameters())
    inputs = blobs().tensors[0]
    assert torch.equal(teacher(inputs), trained()(inputs))
