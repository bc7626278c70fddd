from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.features import HEAD_REFIT, LINEAR_PROBE, LOGIT_REFIT, RAW_OUTPUTS, head_pass
from gradpivot.auditing.subject import Subject
from gradpivot.data import ForgetSplit
from gradpivot.results import judge
from gradpivot.testing.problems import blobs, trained


def test_the_head_is_found_inside_a_wrapper():
    model = planted.original()
    subject = planted.case(planted.masked(model))
    records = subject.indices("forget")[:7]
    seen = head_pass(subject, subject.model, records)
    images = subject.split.train.tensors[0][records.copy()]
    with torch.no_grad():
        assert np.allclose(seen.inputs, model.layers[:-1](images).numpy(), atol=1e-6)
        assert np.allclose(seen.outputs, model(images).numpy(), atol=1e-6)
        assert np.allclose(seen.products, (model(images) - model.layers[-1].bias).numpy(), atol=1e-5)
    assert (seen.labels == planted.FORGOTTEN).all()


def test_a_model_without_a_linear_head_is_not_tested():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.eye(4)[:3])

        def forward(self, features):
            return -torch.cdist(features, self.centres)

    subject = Subject(model=Distances(), split=ForgetSplit.by_class(blobs(), blobs(seed=1), 0))
    for attack in (HEAD_REFIT, LINEAR_PROBE, LOGIT_REFIT, RAW_OUTPUTS):
        with pytest.raises(NotTestedError, match=r"no nn\.Linear with 3 outputs"):
            attack.run(subject)


def test_few_records_are_not_tested():
    split = ForgetSplit.by_index(blobs(), blobs(seed=1), [0, 1, 2])
    subject = Subject(model=trained(), split=split, retrained=(trained(),))
    with pytest.raises(NotTestedError, match="more than 5 forgotten records; there are 3"):
        HEAD_REFIT.run(subject)
    assert LINEAR_PROBE.run(subject).n == 3


@pytest.mark.numeric
@pytest.mark.parametrize("value", [-1e9, float("-inf")])
@pytest.mark.parametrize("seed", [0, 10])
def test_a_mask_is_caught_by_looking_behind_it(value, seed):
    fake = planted.masked(planted.original(seed), value)
    assert judge(RAW_OUTPUTS.run(planted.case(fake, seed)), 10) == "distinguishable"
    alone = Subject(model=fake, split=planted.class_split())
    assert judge(RAW_OUTPUTS.run(alone), 10) == "distinguishable"
    assert judge(RAW_OUTPUTS.run(planted.case(planted.retrained(seed + 3), seed)), 10) == "indistinguishable"


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("attack", [HEAD_REFIT, LOGIT_REFIT, LINEAR_PROBE], ids=lambda attack: attack.name)
def test_a_mask_is_caught_by_a_new_head_and_a_retrained_model_is_not(attack):
    """On average over seeds, beyond what is normal between retrained models."""
    gaps: dict[str, list[float]] = {"mask": [], "bias": [], "retrained": []}
    for seed in (0, 10, 20, 30, 40):
        biased = planted.original(seed)
        with torch.no_grad():
            biased.layers[-1].bias[planted.FORGOTTEN] = -1e9
        fakes = {
            "mask": planted.masked(planted.original(seed)),
            "bias": biased,
            "retrained": planted.retrained(seed + 3),
        }
        for name, fake in fakes.items():
            found = attack.run(planted.case(fake, seed, retrained=(planted.retrained(seed + 1),), original=None))
            gaps[name].append(found.difference)
    assert np.mean(gaps["mask"]) > attack.noise
    assert np.mean(gaps["bias"]) > attack.noise
    assert np.mean(gaps["retrained"]) < attack.noise
