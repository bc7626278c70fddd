"""Scorers of generators: the classes a classifier recognises in the samples, and their distance from real images.

All models of a problem use the same seeds, so scores and pictures differ only by the model.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.data import Loader, cut, encode_rgb
from gradpivot.errors import GradPivotError
from gradpivot.evaluate.classifiers.evaluation import fixed_subset
from gradpivot.evaluate.generators.frechet import Features, FeatureStatistics, inception, statistics_of
from gradpivot.evaluate.generators.judge import Judge, Reference, recogniser_features
from gradpivot.evaluate.generators.pictures import Pictures
from gradpivot.evaluate.generators.scores import GenerationScores
from gradpivot.evaluate.on_test import accuracy_on_test
from gradpivot.evaluate.scorer import Examination, Scorer
from gradpivot.models import weights_digest
from gradpivot.tasks import Classification, Diffusion, Sampler

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate.generators.judging import Judging
    from gradpivot.evaluate.scores import Scored
    from gradpivot.loop import Progress
    from gradpivot.tasks import Task

__all__ = ["GeneratorScorer", "SampleScorer"]

_BATCH_SIZE = 256


class GeneratorScorer(Scorer):
    """Judges the images of generators. Subclasses implement the sampling in :meth:`examine`.

    Args:
        judging: Sampling and judging settings.
        classifier: Maps images (n, c, h, w) in [0, 1] to logits, or a function that returns it on first use. None for
            a scorer that only checks splits.
        task: The generators' task.
        folder: Cache for the statistics of real images, which take minutes with Inception; no cache if None.
    """

    metrics = GenerationScores.metrics
    steerable = ("ua", "ra")

    def __init__(
        self,
        judging: Judging,
        classifier: nn.Module | Callable[[], nn.Module] | None,
        task: Any,
        folder: Path | None = None,
    ) -> None:
        self._judging, self._task, self._folder = judging, task, folder
        self._classifier = classifier
        self._judges: dict[tuple[int, bytes], tuple[ForgetSplit, Judge]] = {}

    def check(self, split: ForgetSplit) -> None:
        """Raise unless the split forgets whole classes and the classifier is accurate enough."""
        if split.kind != "class":
            raise GradPivotError(f"the forget set is of kind {split.kind!r}; a generator can only forget whole classes")
        if self._classifier is not None:
            self.judge(split)

    def scores(self, model: nn.Module, split: ForgetSplit) -> Scored:
        """Sample from the model and judge the images."""
        return self.examine(model, split).scores

    @abstractmethod
    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examination:
        """Sample from ``model`` and judge the images with :meth:`judge`."""

    def of_diverged(self, split: ForgetSplit) -> GenerationScores:
        """No images, and all fractions 0."""
        return GenerationScores.of_diverged(_forgotten(split))

    def judge(self, split: ForgetSplit) -> Judge:
        """The judge for a split: the classifier, and statistics of real images of the retained classes.

        Cached per forget set. Validation data that a split takes from the test set do not matter here.

        Raises:
            GradPivotError: If the classifier's test accuracy is too low.
        """
        key = (id(split.train), split.forget_indices.tobytes() + split.retain_indices.tobytes())
        if key not in self._judges:
            # Keep the split alive, so that no other data can get the same id.
            self._judges[key] = split, self._judge(split)
        return self._judges[key][1]

    def _judge(self, split: ForgetSplit) -> Judge:
        judging, classifier = self._judging, self._classifier
        if classifier is None:
            raise GradPivotError("the scorer has no classifier; pass one to judge samples")
        if not isinstance(classifier, nn.Module):
            classifier = self._classifier = classifier()
        accuracy = accuracy_on_test(classifier, split, Classification(adapter=self._task.adapter))
        if accuracy < judging.least:
            raise GradPivotError(
                f"the judging classifier has a test accuracy of {100 * accuracy:.2f} %; it needs at least "
                f"{100 * judging.least:g} %: train it longer"
            )
        facts = {"split": split.hash, "images": judging.reference_images, "by": weights_digest(classifier)}
        device, folder = next(classifier.parameters()).device, self._folder
        real = [
            Reference(one, self._statistics(one, split, folder and folder / f"real-{name}.safetensors", facts))
            for name in judging.features
            for one in [self._features(name, classifier, str(device))]
        ]
        return Judge(classifier, accuracy, _forgotten(split), real, judging.rescale)

    def _statistics(
        self, features: Features, split: ForgetSplit, file: Path | None, facts: dict[str, Any]
    ) -> FeatureStatistics:
        """Statistics of the real images, from the cache if it matches."""
        if file is not None and file.exists():
            # Recompute if the file is damaged or stale.
            with suppress(GradPivotError):
                return FeatureStatistics.load(file, features.name, facts)
        made = statistics_of(self._real(split, features.device), features)
        if file is not None:
            made.save(file, facts)
        return made

    def _real(self, split: ForgetSplit, device: str) -> Iterator[Tensor]:
        """Batches of real images of the retained classes."""
        indices = fixed_subset(split.retain_indices, self._judging.reference_images)
        loader = Loader(split.train, torch.device(device), seed=0)
        for batch in loader.batches(cut(indices, _BATCH_SIZE), epoch=-1):
            yield self._task.adapter(batch)[0]

    def _features(self, name: str, classifier: nn.Module, device: str) -> Features:
        if name == "inception":
            return inception(device)
        if not (hasattr(classifier, "features") and hasattr(classifier, "width")):
            raise GradPivotError(
                f"{type(classifier).__name__} has no 'features' and 'width', which in-domain distances need; add them "
                f"or use features=('inception',)"
            )
        return recogniser_features(classifier, self._judging.classifier, device)  # type: ignore[arg-type]


class SampleScorer(GeneratorScorer):
    """Judges samples of class-conditional diffusion models. Takes the same arguments as :class:`GeneratorScorer`."""

    def __init__(
        self,
        judging: Judging,
        classifier: nn.Module | Callable[[], nn.Module] | None,
        task: Task,
        folder: Path | None = None,
    ) -> None:
        super().__init__(judging, classifier, Diffusion.require(task, "judge"), folder)
        self._sampler = Sampler(kind=judging.sampler, steps=judging.steps, guidance=judging.guidance)

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """Number of samples drawn from a model."""
        return {"samples": sum(self._sample_count(name, _forgotten(split)) for name in range(self._task.classes))}

    def passes(self, split: ForgetSplit) -> int:
        """Number of per-sample forward passes."""
        return self.sizes(split)["samples"] * self._judging.steps * (2 if self._judging.guidance else 1)

    def for_search(self) -> SampleScorer:
        """A scorer that draws equally many samples of each class; the final model is scored with all of them."""
        quicker = copy.copy(self)
        quicker._judging = dataclasses.replace(self._judging, forgotten_samples=None)
        return quicker

    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examination:
        """Sample from ``model`` and judge the images.

        Raises:
            NonFiniteError: If the samples are not finite.
        """
        judge, forgotten = self.judge(split), _forgotten(split)
        rows = [*forgotten, *(c for c in range(self._task.classes) if c not in forgotten)]
        kept: list[Tensor] = []
        scores = judge.conditional(self._drawn(model, rows, forgotten, kept, progress))
        return Examination(scores, _sheet(torch.cat(kept), rows, self._judging.columns))

    def _drawn(
        self, model: nn.Module, rows: list[int], forgotten: list[int], kept: list[Tensor], progress: Progress | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of samples and classes, and collect the first columns of every class in ``kept``."""
        # All rows use the same seeds, so a column shows the same noise for every class.
        seeds = [seed for name in rows for seed in range(self._sample_count(name, forgotten))]
        labels = [name for name in rows for _ in range(self._sample_count(name, forgotten))]
        done = 0
        for images, asked in self._sampler.batches(model, self._task, labels, seeds, progress=progress):
            columns = torch.tensor(seeds[done : done + len(images)])
            kept.append(images[columns < self._judging.columns])
            done += len(images)
            yield images, asked

    def _sample_count(self, name: int, forgotten: list[int]) -> int:
        """Number of samples to draw of a class."""
        return self._judging.of_forgotten if name in forgotten else self._judging.samples


def _forgotten(split: ForgetSplit) -> list[int]:
    return [int(name) for name in split.classes]


def _sheet(images: Tensor, rows: list[int], columns: int) -> Pictures:
    """Arrange samples, given row by row, into a grid."""
    _, channels, height, width = images.shape
    pixels = (images.clamp(0, 1) * 255).round().to(torch.uint8).expand(-1, 3 if channels == 1 else channels, -1, -1)
    grid = pixels.reshape(len(rows), columns, 3, height, width).permute(0, 3, 1, 4, 2)
    sheet = np.ascontiguousarray(grid.reshape(len(rows) * height, columns * width, 3).numpy())
    return Pictures(png=base64.b64encode(encode_rgb(sheet)).decode("ascii"), rows=tuple(rows), columns=columns)
