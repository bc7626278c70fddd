from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st

from gradpivot import CUP
from gradpivot.errors import GradPivotError
from gradpivot.tasks.objectives import _OBJECTIVES, Objective, list_objectives, objective, register_objective

logits = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


@given(logits)
def test_unlikelihood_is_minus_log_one_minus_p(values):
    z = torch.tensor([values], dtype=torch.float64)
    others = sum(math.exp(v - max(values)) for v in values[1:])
    everything = sum(math.exp(v - max(values)) for v in values)
    expected = math.log(everything) - math.log(others) if others > 0 else values[0] - max(values[1:])
    assert objective("unlikelihood")(z, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(logits)
def test_unlikelihood_has_the_gradient_of_its_two_logsumexps(values):
    mine, theirs = (torch.tensor([values] * 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = torch.tensor([0, len(values) - 1])
    objective("unlikelihood")(mine, y).backward()
    others = theirs.scatter(1, y[:, None], float("-inf"))
    (theirs.logsumexp(1) - others.logsumexp(1)).mean().backward()
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12)


def test_unlikelihood_has_its_floor_and_a_gradient_where_p_rounds_to_one():
    sure = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = objective("unlikelihood")(sure, torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(200 - math.log(2))
    assert sure.grad[0, 0].item() == pytest.approx(1.0)
    gone = objective("unlikelihood")(torch.tensor([[-200.0, 0.0]]), torch.tensor([0]))
    assert gone.item() == objective("unlikelihood").lower_bound == 0


def test_negative_ce_is_the_papers_and_has_no_floor():
    z, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    expected = z.log_softmax(1).gather(1, y[:, None]).mean()
    torch.testing.assert_close(objective("negative_ce")(z, y), expected)
    assert objective("negative_ce").lower_bound is None


def test_unknown_objective():
    assert list_objectives()[0] == "unlikelihood"
    with pytest.raises(GradPivotError, match="choose one of unlikelihood, negative_ce"):
        objective("ce")


def test_an_objective_of_ones_own():
    mine = Objective("test-uniform", lambda z, y: -z.log_softmax(1).mean(), 0.0)
    try:
        assert register_objective(mine) is objective("test-uniform")
        assert CUP(objective="test-uniform").objective == "test-uniform"
        with pytest.raises(GradPivotError, match="already"):
            register_objective(mine)
    finally:
        _OBJECTIVES.pop("test-uniform")


def drawn_labels(n: int, k: int, seed: int, true: int = 0) -> torch.Tensor:
    """The labels that random_label drew, read off the gradient: softmax − one-hot has its only negative there."""
    torch.manual_seed(seed)
    z = torch.zeros(n, k, requires_grad=True)
    objective("random_label")(z, torch.full((n,), true)).backward()
    negative = z.grad < 0
    assert bool((negative.sum(1) == 1).all())
    return negative.long().argmax(1)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_random_labels_are_uniform_over_all_classes_the_true_one_included(k):
    from scipy.stats import chisquare

    for seed in range(3):
        counts = drawn_labels(20_000, k, seed, true=1).bincount(minlength=k)
        assert chisquare(counts.numpy()).pvalue > 1e-3


def test_random_labels_depend_on_the_generator_only():
    assert torch.equal(drawn_labels(50, 5, 3), drawn_labels(50, 5, 3, true=4))
    assert not torch.equal(drawn_labels(50, 5, 3), drawn_labels(50, 5, 4))
    z, y = torch.randn(50, 5), torch.zeros(50, dtype=torch.long)
    assert objective("random_label")(z, y).item() != objective("random_label")(z, y).item()


def test_random_label_is_cross_entropy_to_what_was_drawn():
    z, y = torch.randn(40, 4), torch.zeros(40, dtype=torch.long)
    drawn = drawn_labels(40, 4, 7)
    torch.manual_seed(7)
    torch.testing.assert_close(objective("random_label")(z, y), -z.log_softmax(1).gather(1, drawn[:, None]).mean())
    assert objective("random_label").lower_bound == 0


@given(logits)
def test_uniform_is_the_divergence_from_the_uniform_distribution(values):
    z = torch.tensor([values], dtype=torch.float64)
    p = z.softmax(1)
    k = len(values)
    expected = sum(1 / k * (math.log(1 / k) - math.log(q)) for q in p[0].tolist() if q > 0)
    if bool((p > 0).all()):
        assert objective("uniform")(z, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert objective("uniform")(torch.zeros(2, k), torch.tensor([0, 1])).item() == pytest.approx(0, abs=1e-6)


@given(logits)
def test_npo_is_bounded_and_falls_with_p(values):
    z = torch.tensor([values], dtype=torch.float64)
    p = z.softmax(1)[0, 0].item()
    loss = objective("npo")(z, torch.tensor([0])).item()
    assert loss == pytest.approx(2 * math.log1p(p), rel=1e-9, abs=1e-12)
    assert objective("npo").lower_bound <= loss <= 2 * math.log(2) + 1e-9


def test_the_hinge_forgets_down_to_a_guess_and_no_further():
    z = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-3.0, 0.0, 0.0]], requires_grad=True)
    ce = torch.nn.functional.cross_entropy(z, torch.zeros(3, dtype=torch.long), reduction="none")
    loss = objective("hinge")(z, torch.zeros(3, dtype=torch.long))
    assert loss.item() == pytest.approx((math.log(3) - ce[0].item()) / 3, abs=1e-6)
    loss.backward()
    assert z.grad[0].abs().sum() > 0
    assert not z.grad[2].any()
    assert objective("hinge").lower_bound == 0


@given(st.lists(st.floats(0, 20), min_size=1, max_size=8), st.floats(0, 10))
def test_objectives_of_losses(values, ignorance):
    """−loss falls without end; the hinge is ignorance − loss until that is used up."""
    losses = torch.tensor(values, dtype=torch.float64)
    assert objective("negative_ce").of(losses, ignorance).item() == pytest.approx(-sum(values) / len(values))
    expected = sum(max(0.0, ignorance - value) for value in values) / len(values)
    assert objective("hinge").of(losses, ignorance).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["negative_ce", "hinge"])
def test_of_cross_entropies_they_are_what_they_are_of_logits(name):
    z, y = torch.randn(7, 4), torch.arange(7) % 4
    ce = torch.nn.functional.cross_entropy(z, y, reduction="none")
    torch.testing.assert_close(objective(name).of(ce, math.log(4)), objective(name)(z, y))


def test_objectives_of_labels_say_what_to_use_instead():
    with pytest.raises(GradPivotError, match=r"random_label needs class probabilities.*negative_ce or hinge"):
        objective("random_label").of(torch.ones(2), 1.0)
