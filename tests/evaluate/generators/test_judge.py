"""Judging generators by a classifier and by real images."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.generators.frechet import Features, frechet_distance, statistics_of
from gradpivot.evaluate.generators.judge import Judge, Reference, recogniser_features
from gradpivot.evaluate.generators.scores import GenerationScores
from gradpivot.evaluate.scores import wilson_interval
from gradpivot.models.recogniser import Recogniser


class Reads(nn.Module):
    """A classifier of three classes that reads the class off the first pixel: 0, 0.1 or 0.2."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return -(images[:, 0, 0, :1] - torch.tensor([0.0, 0.1, 0.2])).abs()


def images_of(labels: list[int], seed: int = 0) -> torch.Tensor:
    images = torch.rand(len(labels), 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    images[:, 0, 0, 0] = torch.tensor(labels) / 10
    return images


PIXELS = Features("pixels", 16, lambda images: images.flatten(1))


def test_what_was_asked_for_and_what_it_is_called():
    judge = Judge(Reads(), 0.995, [2])
    batches = [(images_of([0, 0, 1]), torch.tensor([0, 0, 0])), (images_of([1, 2, 0, 1]), torch.tensor([1, 2, 2, 2]))]
    told = judge.conditional(batches)
    assert told.asked == (0, 1, 2)
    assert told.called == ((2, 1, 0), (0, 1, 0), (1, 1, 1))
    assert told.recognised() == {0: pytest.approx(2 / 3), 1: 1.0, 2: pytest.approx(1 / 3)}
    assert told.ua == pytest.approx(2 / 3)
    assert told.n == 7
    low, high = told.class_interval(0)
    assert low < 2 / 3 < high


def test_a_generator_without_classes_is_judged_by_what_its_images_are_called():
    told = Judge(Reads(), 0.99, [2]).unconditional([images_of([0, 1, 2]), images_of([2])])
    assert told.share_called(2) == 0.5
    assert told.n == 4
    assert told.asked == ()
    assert told.class_interval(2)[0] < 0.5 < told.class_interval(2)[1]
    with pytest.raises(GradPivotError, match="no images of the forgotten classes"):
        _ = told.ua
    with pytest.raises(GradPivotError, match="no images"):
        Judge(Reads(), 0.99, [2]).unconditional([])


def test_distances_are_of_the_classes_that_are_kept():
    """Whatever a forgotten class has become, it does not enter the distance."""
    real = images_of([0, 1] * 30, seed=1)
    reference = Reference(PIXELS, statistics_of([real], PIXELS))
    judge = Judge(Reads(), 0.99, [2], [reference])
    kept, wild = images_of([0, 1] * 20, seed=2), torch.full((9, 1, 4, 4), 50.0)
    asked = torch.tensor([0, 1] * 20 + [2] * 9)
    order = torch.randperm(49, generator=torch.Generator().manual_seed(0))
    mixed = torch.cat([kept, wild])[order]
    told = judge.conditional(list(zip(mixed.split(8), asked[order].split(8), strict=True)))
    expected = frechet_distance(statistics_of([kept], PIXELS), reference.statistics)
    assert told.frechet[0].value == pytest.approx(expected.value, rel=1e-9)
    assert (told.frechet[0].n, told.frechet[0].n_reference, told.frechet[0].features) == (40, 60, "pixels")
    halfway = replace(told, rescale=2 * expected.value)
    assert halfway.vector() == (pytest.approx(0.5), told.ua)
    assert replace(told, rescale=expected.value / 2).fidelity == 0
    with pytest.raises(GradPivotError, match="there is no Fréchet distance"):
        _ = replace(told, frechet=()).fidelity


def test_shares_of_kept_and_forgotten_classes_have_intervals():
    told = Judge(Reads(), 0.99, [2]).conditional(
        [(images_of([0, 0, 1, 1, 2, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 2, 2, 2, 2]))]
    )
    assert (told.ra, told.ua) == (0.75, 0.75)
    assert told.interval("ra") == told.interval("ua") == wilson_interval(0.75, 4)


def test_a_run_that_diverged_counts_with_zeros():
    told = GenerationScores.of_diverged([2])
    assert (told.n, told.ra, told.ua, told.fidelity) == (0, 0, 0, 0)
    assert told.vector() == (0, 0)
    assert GenerationScores.from_dict(told.to_dict()) == told


def test_all_images_of_a_generator_without_classes_count():
    real = images_of([0, 1] * 30)
    judge = Judge(Reads(), 0.99, [2], [Reference(PIXELS, statistics_of([real], PIXELS))])
    assert judge.unconditional(real.split(7)).frechet[0].value == 0
    assert judge.unconditional(real.split(7)).frechet[0].n == 60


def test_scores_go_through_json():
    judge = Judge(Reads(), 0.99, [2], [Reference(PIXELS, statistics_of([images_of([0, 1, 1])], PIXELS))])
    told = judge.conditional([(images_of([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2]))])
    assert GenerationScores.from_dict(json.loads(json.dumps(told.to_dict()))) == told


def test_images_that_are_not_finite_are_told():
    with pytest.raises(NonFiniteError, match="not finite"):
        Judge(Reads(), 0.99, [2]).unconditional([torch.full((2, 1, 4, 4), np.nan)])


def test_in_domain_features_say_so():
    model = Recogniser(size=8, width=12)
    features = recogniser_features(model, "mnist-recogniser")
    assert features.name == "in-domain mnist-recogniser"
    assert features.extract(torch.rand(3, 1, 8, 8)).shape == (3, features.dimension) == (3, 12)
