"""Crops and flips against a plain loop over samples, and what they may depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import pad
from torch.utils.data import Subset, TensorDataset

from gradpivot import CUP, ForgetSplit
from gradpivot.data.augmentation import Augmentation
from gradpivot.data.loader import Loader
from gradpivot.errors import GradPivotError
from gradpivot.loop.loop import Loop
from gradpivot.models.cnn import SmallCNN
from gradpivot.tasks.classification import Classification

CPU = torch.device("cpu")


def images(n: int = 40) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, 8, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def one_by_one(change: Augmentation, stored: torch.Tensor, indices: np.ndarray, flips: bool) -> torch.Tensor:
    """What torchvision's RandomCrop(padding=4) and RandomHorizontalFlip do to one image at a time."""
    found = []
    for image, index in zip(stored, indices, strict=True):
        top, left = change._shifts[index].tolist()
        part = pad(image, [4] * 4)[:, top : top + image.shape[1], left : left + image.shape[2]]
        found.append(part.flip(2) if flips and change._flips[index] else part)
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["crop", "crop_flip"])
def test_a_batch_is_what_a_loop_over_samples_gives(kind):
    stored, indices = images(), np.arange(40)[::-1].copy()
    change = Augmentation(kind, 40, seed=3, epoch=2)
    changed = change(stored[indices], indices)
    assert torch.equal(changed, one_by_one(change, stored[indices], indices, kind == "crop_flip"))
    assert changed.dtype is torch.uint8
    assert changed.is_contiguous(memory_format=torch.channels_last)


def test_every_shift_and_both_directions_are_drawn_evenly():
    change = Augmentation("crop_flip", 20_000, seed=0, epoch=0)
    counts = torch.bincount(change._shifts.flatten(), minlength=9)
    assert len(counts) == 9
    assert (counts / 40_000 - 1 / 9).abs().max() < 0.01
    assert abs(change._flips.double().mean().item() - 0.5) < 0.02


def test_it_depends_on_seed_epoch_and_sample_not_on_the_batch():
    data = TensorDataset(images(), torch.arange(40))

    def seen(order: list[list[int]], seed: int = 0, epoch: int = 0) -> dict[int, torch.Tensor]:
        batches = Loader(data, CPU, seed).batches([np.array(some) for some in order], epoch, "crop_flip")
        return {int(y): x for batch in batches for x, y in zip(*batch, strict=True)}

    whole = seen([list(range(40))])
    halves = seen([list(range(20, 40)), list(range(20))])
    assert all(torch.equal(whole[i], halves[i]) for i in range(40))
    for other in (seen([list(range(40))], seed=1), seen([list(range(40))], epoch=1)):
        assert not all(torch.equal(whole[i], other[i]) for i in range(40))


def test_without_a_wish_nothing_changes():
    data = TensorDataset(images(), torch.arange(40))
    for wish in (None, "none"):
        ((x, _),) = Loader(data, CPU, 0).batches([np.arange(40)], 0, wish)
        assert torch.equal(x, data.tensors[0])


def test_a_part_of_the_data_has_augmentations_of_its_own_length():
    data = Subset(TensorDataset(images(), torch.arange(40)), range(10, 20))
    ((x, y),) = Loader(data, CPU, 0).batches([np.array([9, 0])], 0, "crop")
    assert (x.shape, y.tolist()) == ((2, 3, 8, 10), [19, 10])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([(torch.zeros(3, 8, 8), 0)], "augment in the dataset"),
        (TensorDataset(torch.zeros(4, 5), torch.zeros(4)), r"samples have shape \(5,\)"),
    ],
)
def test_what_cannot_be_cropped_is_refused(data, message):
    with pytest.raises(GradPivotError, match=message):
        next(Loader(data, CPU, 0).batches([np.array([0])], 0, "crop"))


def test_an_unknown_augmentation_is_refused():
    with pytest.raises(GradPivotError, match="augment is 'mixup'; choose one of none, crop, crop_flip, None"):
        CUP(augment="mixup")


def test_a_resumed_run_sees_the_same_crops(tmp_path):
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(60, 1, 8, 8, generator=generator), torch.arange(60) % 3)
    split, model = ForgetSplit.by_class(data, data, 0), SmallCNN(classes=3)
    method = CUP(epochs=3, batch_size=4, augment="crop_flip")

    def run(**options):
        return Loop(seed=1, **options).run(method, model, Classification(), split).model.state_dict()

    def stop(done: int, total: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "c.pt", checkpoint_seconds=0, progress=stop)
    resumed = run(checkpoint=tmp_path / "c.pt", checkpoint_seconds=0)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    plain = Loop(seed=1).run(CUP(epochs=3, batch_size=4), model, Classification(), split).model.state_dict()
    assert not all(torch.equal(whole[name], plain[name]) for name in whole)
