"""The scorers of generators: what a classifier calls their samples, and how far these are from real images.

Every model of a problem is drawn from with the same seeds, so that scores and pictures differ by the model alone.
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
from gradpivot.evaluate.classifiers.evaluation import scored_part
from gradpivot.evaluate.generators.frechet import Features, FeatureStatistics, inception, statistics_of
from gradpivot.evaluate.generators.judge import Judge, Reference, recogniser_features
from gradpivot.evaluate.generators.pictures import Pictures
from gradpivot.evaluate.generators.scores import GenerationScores
from gradpivot.evaluate.on_test import accuracy_on_test
from gradpivot.evaluate.scorer import Examined, Scorer
from gradpivot.models import weights_digest
from gradpivot.tasks import Classification, Diffusion, Sampler

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate.generators.judging import Judging
    from gradpivot.evaluate.scores import Scored
    from gradpivot.loop import Progress
    from gradpivot.tasks import Task

__all__ = ["GeneratorScorer", "SampleScorer"]

_IMAGES_A_BATCH = 256


class GeneratorScorer(Scorer):
    """Judges what generators make; how images are drawn from a model is the subclass's.

    Args:
        judging: How.
        classifier: From images (n, c, h, w) in [0, 1] to logits, or what gives it when it is first needed. None for a
            scorer that only checks.
        task: What the generators are trained for.
        folder: Where the statistics of real images are kept for the next time, which by Inception's features take many
            minutes; nowhere if None.
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
        """Raise for anything but whole classes, and for a classifier that recognises too few real images."""
        if split.kind != "class":
            raise GradPivotError(
                f"a generator is judged by classes, and what is forgotten here is {split.kind!r}; forget a class"
            )
        if self._classifier is not None:
            self.judge(split)

    def scores(self, model: nn.Module, split: ForgetSplit) -> Scored:
        """What the classifier calls the model's images, and how far they are from real ones."""
        return self.examine(model, split).scores

    @abstractmethod
    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examined:
        """Draw from ``model`` and judge what it drew, by :meth:`judge`."""

    def of_diverged(self, split: ForgetSplit) -> GenerationScores:
        """Nothing was made, and every share is 0."""
        return GenerationScores.of_diverged(_forgotten(split))

    def judge(self, split: ForgetSplit) -> Judge:
        """The classifier, tested on the test images, beside the real images of the kept classes.

        Made once for each thing to forget: which part of the test data a split has set aside does not matter here.

        Raises:
            GradPivotError: if it recognises too few of them.
        """
        key = (id(split.train), split.forget_indices.tobytes())
        if key not in self._judges:
            # The split is kept with it, so that no other data get the same id.
            self._judges[key] = split, self._judge(split)
        return self._judges[key][1]

    def _judge(self, split: ForgetSplit) -> Judge:
        judging, classifier = self._judging, self._classifier
        if classifier is None:
            raise GradPivotError("there is no classifier to judge samples; give the scorer one")
        if not isinstance(classifier, nn.Module):
            classifier = self._classifier = classifier()
        accuracy = accuracy_on_test(classifier, split, Classification(adapter=self._task.adapter))
        if accuracy < judging.least:
            raise GradPivotError(
                f"the classifier recognises {100 * accuracy:.2f} % of the test images; to judge it must be "
                f"{100 * judging.least:g} % or more: train it longer"
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
        """Those of the real images: read back if they were kept, and of the same."""
        if file is not None and file.exists():
            # What is damaged or of something else is no loss: it is made anew.
            with suppress(GradPivotError):
                return FeatureStatistics.load(file, features.name, facts)
        made = statistics_of(self._real(split, features.device), features)
        if file is not None:
            made.save(file, facts)
        return made

    def _real(self, split: ForgetSplit, device: str) -> Iterator[Tensor]:
        """Real images of the classes that are kept."""
        indices = scored_part(split.retain_indices, self._judging.reference_images)
        loader = Loader(split.train, torch.device(device), seed=0)
        for batch in loader.batches(cut(indices, _IMAGES_A_BATCH), epoch=-1):
            yield self._task.adapter(batch)[0]

    def _features(self, name: str, classifier: nn.Module, device: str) -> Features:
        if name == "inception":
            return inception(device)
        if not (hasattr(classifier, "features") and hasattr(classifier, "width")):
            raise GradPivotError(
                f"{type(classifier).__name__} has no 'features' and 'width', which in-domain distances are by; use "
                f"features=('inception',)"
            )
        return recogniser_features(classifier, self._judging.classifier, device)  # type: ignore[arg-type]


class SampleScorer(GeneratorScorer):
    """Judges samples of every class that diffusion models draw from the same noise; arguments as of its base."""

    def __init__(
        self,
        judging: Judging,
        classifier: nn.Module | Callable[[], nn.Module] | None,
        task: Task,
        folder: Path | None = None,
    ) -> None:
        super().__init__(judging, classifier, Diffusion.required(task, "judge"), folder)
        self._sampler = Sampler(kind=judging.sampler, steps=judging.steps, guidance=judging.guidance)

    def sizes(self, split: ForgetSplit) -> dict[str, int]:
        """How many samples a model draws."""
        return {"samples": sum(self._many(name, _forgotten(split)) for name in range(self._task.classes))}

    def passes(self, split: ForgetSplit) -> int:
        """Forward passes of a sample that they take."""
        return self.sizes(split)["samples"] * self._judging.steps * (2 if self._judging.guidance else 1)

    def in_search(self) -> SampleScorer:
        """No more samples of the forgotten class than of others: the finished model is judged by all."""
        quicker = copy.copy(self)
        quicker._judging = dataclasses.replace(self._judging, forgotten_samples=None)
        return quicker

    def examine(self, model: nn.Module, split: ForgetSplit, progress: Progress | None = None) -> Examined:
        """Draw from ``model`` and judge what it drew.

        Raises:
            NonFiniteError: if the samples are not finite.
        """
        judge, forgotten = self.judge(split), _forgotten(split)
        rows = [*forgotten, *(c for c in range(self._task.classes) if c not in forgotten)]
        kept: list[Tensor] = []
        scores = judge.conditional(self._drawn(model, rows, forgotten, kept, progress))
        return Examined(scores, _sheet(torch.cat(kept), rows, self._judging.columns))

    def _drawn(
        self, model: nn.Module, rows: list[int], forgotten: list[int], kept: list[Tensor], progress: Progress | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of samples and classes; the first columns of every class are put aside on the way."""
        # A column is a seed, whatever the class: the same noise in every row.
        seeds = [seed for name in rows for seed in range(self._many(name, forgotten))]
        labels = [name for name in rows for _ in range(self._many(name, forgotten))]
        done = 0
        for images, asked in self._sampler.batches(model, self._task, labels, seeds, progress=progress):
            columns = torch.tensor(seeds[done : done + len(images)])
            kept.append(images[columns < self._judging.columns])
            done += len(images)
            yield images, asked

    def _many(self, name: int, forgotten: list[int]) -> int:
        """How many samples of a class are drawn."""
        return self._judging.of_forgotten if name in forgotten else self._judging.samples


def _forgotten(split: ForgetSplit) -> list[int]:
    return [int(name) for name in split.classes]


def _sheet(images: Tensor, rows: list[int], columns: int) -> Pictures:
    """Samples, row by row, as one picture."""
    _, channels, height, width = images.shape
    pixels = (images.clamp(0, 1) * 255).round().to(torch.uint8).expand(-1, 3 if channels == 1 else channels, -1, -1)
    grid = pixels.reshape(len(rows), columns, 3, height, width).permute(0, 3, 1, 4, 2)
    sheet = np.ascontiguousarray(grid.reshape(len(rows) * height, columns * width, 3).numpy())
    return Pictures(png=base64.b64encode(encode_rgb(sheet)).decode("ascii"), rows=tuple(rows), columns=columns)
