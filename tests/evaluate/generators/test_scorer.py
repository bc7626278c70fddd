"""The scorer of generators: how many samples are drawn of what, from which noise, and who may judge them."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch

pytest.importorskip("diffusers")

from gradpivot import CUP, Classification, ForgetSplit, score, unlearn
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.judging import Judging
from gradpivot.evaluate.generators.scorer import SampleScorer
from gradpivot.evaluate.scorer import Examination
from gradpivot.models.ddpm import small_unet
from gradpivot.models.recogniser import Recogniser
from gradpivot.tasks.diffusion.denoising import Diffusion
from gradpivot.tasks.diffusion.sampling import Sampler

TASK = Diffusion(classes=3, timesteps=20)
JUDGING = Judging(classifier="seer", least=0.0, samples=4, columns=2, steps=2)


def split(forget: int = 1) -> ForgetSplit:
    labels = torch.arange(30) % 3
    images = torch.randint(0, 255, (30, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    data = torch.utils.data.TensorDataset(images, labels)
    return ForgetSplit.by_class(data, data, forget)


def classifier() -> Recogniser:
    torch.manual_seed(0)
    return Recogniser(3, size=8, width=8)


def generator() -> torch.nn.Module:
    torch.manual_seed(1)
    return small_unet(size=8, classes=3)


def examined(judging: Judging) -> tuple[SampleScorer, Examination]:
    scorer = SampleScorer(judging, classifier(), TASK)
    return scorer, scorer.examine(generator(), split())


def test_more_can_be_drawn_of_what_is_forgotten():
    alike = examined(JUDGING)[1]
    scorer, more = examined(dataclasses.replace(JUDGING, forgotten_samples=7))
    assert scorer.sizes(split()) == {"samples": 7 + 4 + 4}
    assert scorer.passes(split()) == 15 * 2 * 2
    # A search looks many times: there the forgotten class gets no more samples than others.
    assert scorer.for_search().scores(generator(), split()) == alike.scores
    assert [sum(row) for row in more.scores.called] == [4, 7, 4]
    # The kept classes are drawn from the same noise, and so are the first samples of the forgotten one.
    assert [more.scores.called[name] for name in (0, 2)] == [alike.scores.called[name] for name in (0, 2)]
    assert more.scores.frechet[0].n == 8
    assert more.pictures == alike.pictures


def test_a_batch_may_end_anywhere_between_classes(monkeypatch):
    """The kept pictures are the first of every class, for any batching."""
    judging = dataclasses.replace(JUDGING, forgotten_samples=7)
    whole = examined(judging)[1]
    monkeypatch.setattr("gradpivot.evaluate.generators.scorer.Sampler", partial(Sampler, batch_size=3))
    cut = examined(judging)[1]
    assert cut.scores.called == whole.scores.called
    assert cut.pictures == whole.pictures


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"forgotten_samples": 1}, "with 1 samples per class"), ({"samples": 1}, "samples is 1; it must be at least 2")],
)
def test_too_few_samples_are_refused(changes, why):
    with pytest.raises(GradPivotError, match=why):
        dataclasses.replace(JUDGING, **changes)


def test_judging_survives_json():
    judging = dataclasses.replace(JUDGING, forgotten_samples=9)
    assert Judging.from_dict(judging.to_dict()) == judging


def test_the_classifier_is_asked_for_once_and_before_the_work(monkeypatch):
    asked = []
    scorer = SampleScorer(JUDGING, lambda: asked.append(1) or classifier(), TASK)
    here = split()
    scorer.check(here)
    assert asked == [1]
    # Whichever part of the test data steers, the judge and the real images stay the same.
    judge = scorer.judge(here)
    assert scorer.judge(here.with_validation()) is judge
    assert scorer.for_search().judge(here) is judge
    assert scorer.judge(split(2)) is not judge
    assert asked == [1]


def test_a_weak_classifier_and_other_forgetting_are_refused_before_the_work():
    weak = SampleScorer(dataclasses.replace(JUDGING, least=0.99), classifier(), TASK)
    with pytest.raises(GradPivotError, match="it needs at least 99 %"):
        weak.check(split())
    here = split()
    records = ForgetSplit.by_index(here.train, here.test, [0, 1])
    with pytest.raises(GradPivotError, match="of kind 'index'; a generator can only forget whole classes"):
        SampleScorer(JUDGING, None, TASK).check(records)
    SampleScorer(JUDGING, None, TASK).check(here)
    with pytest.raises(GradPivotError, match="the scorer has no classifier"):
        SampleScorer(JUDGING, None, TASK).scores(generator(), here)
    with pytest.raises(GradPivotError, match="only supports diffusion"):
        SampleScorer(JUDGING, None, Classification())


def test_what_diverged_counts_with_nothing():
    scores = SampleScorer(JUDGING, None, TASK).of_diverged(split())
    assert (scores.n, scores.forgotten, scores.vector()) == (0, (1,), (0, 0))


def test_unlearning_a_generator_gives_scores_and_pictures():
    scorer = SampleScorer(JUDGING, classifier(), TASK)
    method = CUP(dial="angle", iterations=2, batch_size=5, augment="none")
    result = unlearn(generator(), split(), method, task=TASK, scorer=scorer)
    assert (result.scores, result.pictures) == scorer.examine(result.model, split())
    assert result.asked_ua is None
    assert result.point().scores == result.scores
    assert score(generator(), split(), task=TASK, scorer=scorer) == scorer.scores(generator(), split())


def test_a_target_of_a_generator_is_met_by_its_samples():
    scorer = SampleScorer(dataclasses.replace(JUDGING, forgotten_samples=6), classifier(), TASK)
    method = CUP(iterations=2, batch_size=5, augment="none")
    result = unlearn(generator(), split(), method, task=TASK, scorer=scorer, until="UA>=0")
    assert result.met
    assert result.steered_on == {"samples": 12, "validation_source": "half of test"}
    assert result.scores.n == 14
    assert result.pictures is not None
    with pytest.raises(GradPivotError, match="SampleScorer does not provide TA; use UA and RA"):
        unlearn(generator(), split(), method, task=TASK, scorer=scorer, until="TA>=50")
