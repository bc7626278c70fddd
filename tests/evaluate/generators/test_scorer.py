"""The examination of generators: how many samples are drawn of what, from which noise."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch

pytest.importorskip("diffusers")

from gradpivot import ForgetSplit
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.examination import Examination, Examined
from gradpivot.evaluate.generators.judging import Judging
from gradpivot.models.ddpm import small_unet
from gradpivot.models.recogniser import Recogniser
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.diffusion.sampling import Sampler

TASK = Diffusion(classes=3, timesteps=20)
JUDGING = Judging(classifier="seer", least=0.0, samples=4, columns=2, steps=2)


def examined(judging: Judging, forget: int = 1) -> tuple[Examination, Examined]:
    labels = torch.arange(30) % 3
    images = torch.randint(
        0, 255, (30, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    data = torch.utils.data.TensorDataset(images, labels)
    torch.manual_seed(0)
    examination = Examination(
        judging, Recogniser(3, size=8, width=8), TASK, ForgetSplit.by_class(data, data, forget)
    )
    return examination, examination.of(small_unet(size=8, classes=3))


def test_more_can_be_drawn_of_what_is_forgotten():
    alike = examined(JUDGING)[1]
    examination, more = examined(dataclasses.replace(JUDGING, forgotten_samples=7))
    assert examination.samples == 7 + 4 + 4
    assert examination.passes == 15 * 2 * 2
    assert [sum(row) for row in more.scores.called] == [4, 7, 4]
    # The kept classes are drawn from the same noise, and so are the first samples of the forgotten one.
    assert [more.scores.called[name] for name in (0, 2)] == [alike.scores.called[name] for name in (0, 2)]
    assert more.scores.frechet[0].n == 8
    assert more.pictures == alike.pictures


def test_a_batch_may_end_anywhere_between_classes(monkeypatch):
    """Pictures that are kept are the first of every class, whatever the batches."""
    judging = dataclasses.replace(JUDGING, forgotten_samples=7)
    whole = examined(judging)[1]
    monkeypatch.setattr("gradpivot.evaluate.generators.examination.Sampler", partial(Sampler, batch_size=3))
    cut = examined(judging)[1]
    assert cut.scores.called == whole.scores.called
    assert cut.pictures == whole.pictures


@pytest.mark.parametrize(
    ("changes", "why"), [({"forgotten_samples": 1}, "of 1 samples"), ({"samples": 1}, "2 of a class")]
)
def test_too_few_samples_are_refused(changes, why):
    with pytest.raises(GradPivotError, match=why):
        dataclasses.replace(JUDGING, **changes)


def test_judging_survives_json():
    judging = dataclasses.replace(JUDGING, forgotten_samples=9)
    assert Judging.from_dict(judging.to_dict()) == judging
