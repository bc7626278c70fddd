from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from gradpivot.data.loader import Collated, Loader
from gradpivot.data.split import ForgetSplit
from gradpivot.data.worlds import world_split
from gradpivot.errors import GradPivotError
from gradpivot.testing.problems import blobs

TRAIN, TEST = blobs(20), blobs(20, seed=1)
SPLITS = {
    "class": lambda: ForgetSplit.by_class(TRAIN, TEST, [1]),
    "random": lambda: ForgetSplit.random(TRAIN, TEST, 0.3, seed=4).with_validation(),
    "index": lambda: ForgetSplit.by_index(TRAIN, TEST, [0, 7, 8, 30]),
    "predicate": lambda: ForgetSplit.by_predicate(TRAIN, TEST, lambda sample: float(sample[0][0]) > 2),
}


class Listed(Dataset):
    """Not a TensorDataset: read sample by sample."""

    def __len__(self) -> int:
        return len(TRAIN)

    def __getitem__(self, index: int):
        return TRAIN[index]


def inputs_of(dataset, indices) -> torch.Tensor:
    return torch.stack([dataset[int(i)][0] for i in indices])


@pytest.mark.parametrize("kind", SPLITS)
def test_a_world_has_the_retain_set_and_the_targets_inside(kind):
    split = SPLITS[kind]()
    for world in range(5):
        reduced, inside = world_split(split, world)
        assert inside.shape == split.forget_indices.shape
        assert 0 < inside.sum() < len(inside)
        forget, retain = reduced.forget_indices, reduced.retain_indices
        assert torch.equal(inputs_of(reduced.train, forget), inputs_of(TRAIN, split.forget_indices[inside]))
        assert torch.equal(inputs_of(reduced.train, retain), inputs_of(TRAIN, split.retain_indices))
        assert len(reduced.train) == len(split.retain_indices) + inside.sum()
        assert reduced.kind == ("class" if kind == "class" else "index")
        assert reduced.classes == split.classes
        assert reduced.test is split.test
        assert reduced.validation is split.validation
        assert reduced.target is split.target
        assert np.array_equal(reduced.test_indices, split.test_indices)


def test_the_draw_depends_on_world_and_seed_only_and_leaves_the_random_state_alone():
    split, before = SPLITS["class"](), torch.get_rng_state()
    draws = {(world, seed): world_split(split, world, seed)[1] for world in range(4) for seed in range(3)}
    assert torch.equal(torch.get_rng_state(), before)
    assert len({draw.tobytes() for draw in draws.values()}) == len(draws)
    assert all(np.array_equal(world_split(split, *at)[1], draw) for at, draw in draws.items())


def test_targets_are_inside_half_of_the_worlds():
    split = SPLITS["class"]()
    share = np.mean([world_split(split, world)[1] for world in range(200)])
    # Of 4,000 draws: five standard deviations.
    assert abs(share - 0.5) < 5 * 0.5 / 4000**0.5


@pytest.mark.parametrize("data_id", [None, "mine"])
def test_every_world_has_its_own_identity(data_id):
    splits = [ForgetSplit.by_class(TRAIN, TEST, c, data_id=data_id) for c in (0, 1)]
    worlds = [world_split(split, world, seed)[0] for split in splits for world in range(4) for seed in (0, 1)]
    assert len({world.hash for world in worlds}) == len({world.data_digest for world in worlds}) == len(worlds)
    assert world_split(splits[0], 2)[0].hash == world_split(splits[0], 2)[0].hash


def test_two_targets_are_one_inside_and_one_outside():
    split = ForgetSplit.by_index(TRAIN, TEST, [3, 4])
    assert {world_split(split, world)[1].sum() for world in range(20)} == {1}
    with pytest.raises(GradPivotError, match="at least two"):
        world_split(ForgetSplit.by_index(TRAIN, TEST, [3]), 0)


def test_tensors_stay_tensors_and_everything_else_is_read_by_index():
    assert type(world_split(SPLITS["class"](), 0)[0].train) is TensorDataset
    listed = ForgetSplit.by_class(Listed(), TEST, 1)
    reduced, inside = world_split(listed, 0)
    assert type(reduced.train) is Subset
    assert torch.equal(
        inputs_of(reduced.train, reduced.forget_indices), inputs_of(TRAIN, listed.forget_indices[inside])
    )


@pytest.mark.parametrize("train", [TRAIN, Listed()])
def test_a_collate_fn_keeps_collating(train):
    def collate(samples):
        return {"inputs": torch.stack([x for x, _ in samples]), "labels": torch.tensor([int(y) for _, y in samples])}

    reduced, _ = world_split(ForgetSplit.by_class(train, TEST, 1, collate_fn=collate), 0)
    assert isinstance(reduced.train, Collated)
    (batch,) = Loader(reduced.train, torch.device("cpu"), seed=0).batches([reduced.forget_indices], epoch=0)
    assert set(batch["labels"].tolist()) == {1}


def test_what_is_already_forgotten_is_in_no_world():
    first = ForgetSplit.by_class(TRAIN, TEST, 1)
    split = ForgetSplit.by_index(TRAIN, TEST, [0, 3, 6], already_forgotten=first).with_validation()
    for world in range(3):
        reduced, inside = world_split(split, world)
        assert len(reduced.train) == len(split.retain_indices) + inside.sum()
        assert 1 not in reduced.train.tensors[1].tolist()
        assert len(reduced.already_forgotten) == 0
        # A model of this world does not know class 1.
        assert {int(label) for part in (reduced.test, reduced.validation) for _, label in part} == {0, 2}
