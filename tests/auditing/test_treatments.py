from __future__ import annotations

import copy
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import planted
from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.collateral import TEST_ACCURACY, WORST_CLASS
from gradpivot.auditing.attacks.features import HEAD_REFIT, LINEAR_PROBE, LOGIT_REFIT, RAW_OUTPUTS
from gradpivot.auditing.attacks.finetuning import FINETUNE, FINETUNE_FROZEN
from gradpivot.auditing.attacks.forgetting import FORGET_ACCURACY
from gradpivot.auditing.attacks.interpolation import INTERPOLATION
from gradpivot.auditing.attacks.pruning import PRUNE_50
from gradpivot.auditing.attacks.quantisation import QUANTISE_4
from gradpivot.auditing.attacks.relearning import RELEARN_1, RELEARN_5
from gradpivot.auditing.attacks.three_sample import THREE_SAMPLE
from gradpivot.auditing.statistics import paired_difference
from gradpivot.auditing.subject import Subject
from gradpivot.auditing.treatments import (
    LearningCurves,
    Treated,
    compare,
    draw_shots,
    forget_accuracy_after,
    mean_over_draws,
    paired_credit,
    treat,
    weighted_layers,
)
from gradpivot.data import ForgetSplit
from gradpivot.testing.problems import TinyNet, blobs, trained

ATTACKS = [
    FORGET_ACCURACY, QUANTISE_4, PRUNE_50, RAW_OUTPUTS, LOGIT_REFIT, HEAD_REFIT, LINEAR_PROBE, FINETUNE,
    FINETUNE_FROZEN, RELEARN_1, RELEARN_5, INTERPOLATION, THREE_SAMPLE, TEST_ACCURACY, WORST_CLASS,
]  # fmt: skip


def tiny(**fields) -> Subject:
    split = ForgetSplit.by_class(blobs(), blobs(seed=1), 0)
    return Subject(**{"model": trained(), "split": split, "original": trained(), "retrained": (trained(),), **fields})


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_changes_nothing_of_the_callers_and_repeats(attack):
    model = trained().train()
    model.layers[0].eval()
    model.layers[0].weight.requires_grad_(False)
    model.layers[4].weight.grad = torch.ones_like(model.layers[4].weight)
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    subject, again = tiny(model=model), tiny(model=model)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    found = attack.run(subject)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.layers[0].weight.requires_grad
    assert torch.equal(model.layers[4].weight.grad, torch.ones_like(model.layers[4].weight))
    assert not any(module._forward_hooks for module in model.modules())
    np.random.seed(2)
    assert attack.run(again) == found


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.decides], ids=lambda attack: attack.name)
def test_equal_models_do_not_differ(attack):
    found = attack.run(tiny())
    assert found.difference == 0
    assert found.error > 0


def test_the_difference_is_paired_and_extends_the_one_of_correctness():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 2, (2, 50))
    assert paired_credit(first.astype(float), second.astype(float)) == pytest.approx(paired_difference(first, second))
    same = rng.random(50)
    assert paired_credit(same + 0.1, same)[0] == pytest.approx(0.1)
    assert 0 < paired_credit(same + 0.1, same)[1] < paired_credit(rng.random(50), rng.random(50))[1]


def test_the_control_is_the_first_retrained_model_and_the_others_give_the_noise():
    credit = [np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]), np.ones(4)]
    found = compare(tiny(), Treated(np.ones(4), tuple(credit), np.zeros(4)))
    assert (found.value, found.control, found.original) == (1.0, 0.25, 0.0)
    assert (found.difference, found.noise, found.n) == (0.75, 0.75, 4)
    assert found.interval[1] == 1.0


def test_without_a_retrained_model_theory_is_the_control_of_a_class_only():
    ones = Treated(np.ones(9))
    found = compare(tiny(retrained=()), ones, zero_by_theory=True)
    assert (found.control, found.control_is, found.difference) == (0.0, "theory", 1.0)
    assert 0 < found.error < 1
    assert compare(tiny(retrained=()), ones).control is None
    records = Subject(model=trained(), split=ForgetSplit.random(blobs(), blobs(seed=1), 0.2))
    assert compare(records, ones, zero_by_theory=True).control is None


def _poison(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        model.layers[0].weight.fill_(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_overflow_under_a_treatment_are_a_reason_not_a_crash(value):
    with pytest.raises(NotTestedError, match="after poisoning the audited model is not finite"):
        forget_accuracy_after(tiny(), "poisoning", partial(_poison, value=value))


@pytest.mark.parametrize("attack", [FINETUNE, RELEARN_1], ids=lambda attack: attack.name)
def test_training_that_diverges_is_a_reason_not_a_crash(attack):
    class Exploding(nn.Module):
        """Finite in eval mode; its loss is not."""

        def __init__(self):
            super().__init__()
            self.net = trained()

        def forward(self, features):
            return self.net(features) * (float("nan") if torch.is_grad_enabled() else 1.0)

    with pytest.raises(NotTestedError, match="audited model is not finite"):
        attack.run(tiny(model=Exploding()))


def test_every_model_sees_the_same_random_numbers():
    drawn = []
    treat(tiny(), "drawing", lambda model: drawn.append(torch.rand(3)) or np.zeros(1))
    assert len(drawn) == 3
    assert all(torch.equal(numbers, drawn[0]) for numbers in drawn)


def test_shots_are_drawn_per_class_or_from_all_records():
    labels = np.repeat([0, 1], 20)
    both = ForgetSplit.by_class(blobs(), blobs(seed=1), [0, 1])
    shots, other = draw_shots(tiny(split=both), labels, 3, 2)
    assert sorted(labels[shots.given]) == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(np.sort(np.concatenate([shots.given, shots.rest])), np.arange(40))
    assert not np.array_equal(shots.given, other.given)
    records = Subject(model=trained(), split=ForgetSplit.random(blobs(), blobs(seed=1), 0.2))
    assert len(draw_shots(records, labels, 3, 1)[0].given) == 3
    with pytest.raises(NotTestedError, match="more than 20 records of a forgotten class"):
        draw_shots(tiny(split=both), labels, 20, 1)


def test_credits_are_averaged_over_the_draws_that_scored_the_record():
    draws = draw_shots(tiny(), np.zeros(4, dtype=int), 1, 2)
    credits = [np.full(3, 1.0), np.full(3, 0.0)]
    found = mean_over_draws(credits, draws)
    only_first = np.setdiff1d(draws[0].rest, draws[1].rest)
    both = np.intersect1d(draws[0].rest, draws[1].rest)
    positions = {record: at for at, record in enumerate(np.union1d(draws[0].rest, draws[1].rest))}
    assert all(found[positions[record]] == 1 for record in only_first)
    assert all(found[positions[record]] == 0.5 for record in both)


def test_the_area_is_the_mean_over_the_steps():
    curves = LearningCurves(Treated(np.array([[0.0, 1.0, 1.0]])), (0, 10, 20), "steps")
    assert curves.area().audited == pytest.approx([0.75])
    assert curves.at_end().audited == pytest.approx([1.0])
    assert curves.details()["curve"]["audited"] == [0.0, 1.0, 1.0]


def test_a_model_without_layers_to_treat_is_not_tested():
    with pytest.raises(NotTestedError, match="no linear"):
        weighted_layers(nn.Sequential(nn.BatchNorm1d(3)))
    assert len(weighted_layers(TinyNet())) == 2


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("seed", [0, 10, 20, 30, 40])
def test_a_retrained_model_is_not_called_distinguishable(seed):
    from gradpivot.results import judge

    # A single control: further ones would raise the noise.
    subject = planted.case(planted.retrained(seed + 3), seed, retrained=(planted.retrained(seed + 1),))
    deciding = [attack for attack in ATTACKS if attack.decides and attack is not FINETUNE_FROZEN]
    outcomes = {attack.name: judge(attack.run(subject), len(deciding)) for attack in deciding}
    assert "distinguishable" not in outcomes.values(), outcomes
