"""The pivot on FSDP2's sharded weights against whole ones. What two processes do is in tests/replicas.py."""

from __future__ import annotations

import pytest
import torch

import replicas
from gradpivot.geometry.gradient import gradient_of
from gradpivot.geometry.gramian import gram_of
from gradpivot.geometry.sharding import anywhere, gram_over_shards, is_sharded, local, shaped_like_shard

WAYS = ("functions", "tensors", "accumulated", "zeros", "mesh (2, 1)", "mesh (1, 2)")


@pytest.fixture(scope="module")
def found(two_processes):
    return two_processes[0]


def assert_same(two: dict, one: dict) -> None:
    for name, weights in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weights, atol=1e-9, rtol=0)
    for mine, whole in zip(two["told"], one["told"], strict=True):
        for name, value in whole.items():
            assert mine[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_of_pivots_over_shards_is_that_of_one_process(found, way):
    """Weights and the three inner products (‖f‖, ‖r‖, cos α), step for step."""
    one = replicas.pivoted(replicas.uneven(), slice(0, 8), "functions")
    assert any(step["conflict"] for step in one["told"])
    for f in found:
        assert_same(f["pivot_over_shards"][way], one)


def test_masks_are_sharded_too(found):
    masks = replicas.masks_of(replicas.uneven())
    one = replicas.pivoted(replicas.uneven(), slice(0, 8), "functions", masks)
    for f in found:
        assert_same(f["pivot_over_shards"]["masked"], one)


def test_processes_agree_on_every_digit(found):
    first, second = (f["pivot_over_shards"] for f in found)
    for way in first:
        assert first[way]["told"] == second[way]["told"]


def test_ddp_works_if_the_losses_are_functions(found):
    one = replicas.pivoted(replicas.uneven(), slice(0, 8), "functions")
    for f in found:
        two = f["ddp_by_functions"]
        two["weights"] = {name.removeprefix("module."): w for name, w in two["weights"].items()}
        assert_same(two, one)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("partly", "6 of 8 parameters are sharded"),
        ("partly and late", "gathered for a forward pass"),
        ("late", "gathered for a forward pass"),
        ("nan", "NonFiniteError: a gradient is NaN"),
        ("plain masks", "distribute_tensor"),
        ("existing", "a parameter already has a gradient"),
        ("partial", "not reduced yet"),
    ],
)
def test_what_would_be_wrong_is_refused_by_all(found, what, words):
    for f in found:
        assert words in f["shards_refused"][what]


def test_a_torch_without_distributed_can_pivot(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    weight = torch.ones(2, requires_grad=True)
    gradient = gradient_of(lambda: weight.sum(), [weight])[0]
    assert gradient is not None
    assert gradient.tolist() == [1, 1]


def test_whole_tensors_are_left_as_they_are():
    parameters = [torch.zeros(2), torch.zeros(3)]
    gradients = [torch.ones(2), None]
    assert not any(map(is_sharded, parameters))
    assert local(gradients)[0] is gradients[0]
    assert shaped_like_shard(gradients[0], parameters[0]) is gradients[0]
    assert gram_over_shards(parameters, gradients, gradients) == gram_of(gradients, gradients)
    assert anywhere(parameters, True)
    assert not anywhere(parameters, False)
