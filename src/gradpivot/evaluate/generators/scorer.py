"""The examination of a generator: samples of every class from the same noise, judged by a classifier and real images.

Every model of a problem is drawn from with the same seeds, so that scores and pictures differ by the model alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from gradpivot.models import weights_digest
from gradpivot.tasks import Classification, Diffusion, Sampler

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.evaluate.generators.judging import Judging
    from gradpivot.loop import Progress

__all__ = ["Examination", "Examined", "check_examinable"]

_BATCH = 256


class Examined(NamedTuple):
    """What came out."""

    scores: GenerationScores
    pictures: Pictures


def check_examinable(split: ForgetSplit) -> None:
    """Raise unless what is forgotten can be asked for.

    Raises:
        GradPivotError: for anything but whole classes.
    """
    if split.kind != "class":
        raise GradPivotError(
            f"a generator is judged by classes, and what is forgotten here is {split.kind!r}; forget a class"
        )


class Examination:
    """Examines the models of one problem, for one thing to forget.

    Args:
        judging: How.
        classifier: From images (n, c, h, w) in [0, 1] to logits.
        task: What the generators are trained for.
        split: What is forgotten, and the real images.
        folder: Where the statistics of real images are kept for the next time, which by Inception's features take many
            minutes; nowhere if None.

    Raises:
        GradPivotError: if the classifier recognises too few real images, or no class is forgotten.
    """

    def __init__(
        self,
        judging: Judging,
        classifier: nn.Module,
        task: Diffusion,
        split: ForgetSplit,
        folder: Path | None = None,
    ) -> None:
        check_examinable(split)
        self._judging, self._task = judging, task
        self._classes = [int(name) for name in split.classes]
        self._device = next(classifier.parameters()).device
        accuracy = accuracy_on_test(classifier, split, Classification(adapter=task.adapter))
        if accuracy < judging.least:
            raise GradPivotError(
                f"the classifier recognises {100 * accuracy:.2f} % of the test images; to judge it must be "
                f"{100 * judging.least:g} % or more: train it longer"
            )
        facts = {"split": split.hash, "images": judging.reference_images, "by": weights_digest(classifier)}
        real = [
            Reference(
                one, self._statistics(one, split, folder and (folder / f"real-{name}.safetensors"), facts)
            )
            for name in judging.features
            for one in [self._features(name, classifier)]
        ]
        self._judge = Judge(classifier, accuracy, self._classes, real, judging.rescale)
        self._sampler = Sampler(kind=judging.sampler, steps=judging.steps, guidance=judging.guidance)

    @property
    def samples(self) -> int:
        """How many samples a model draws."""
        return sum(map(self._many, range(self._task.classes)))

    @property
    def passes(self) -> int:
        """Forward passes of a sample that they take."""
        return self.samples * self._judging.steps * (2 if self._judging.guidance else 1)

    def of(self, model: nn.Module, progress: Progress | None = None) -> Examined:
        """Draw from ``model`` and judge what it drew.

        Raises:
            NonFiniteError: if the samples are not finite.
        """
        rows = [*self._classes, *(c for c in range(self._task.classes) if c not in self._classes)]
        kept: list[Tensor] = []
        scores = self._judge.conditional(self._drawn(model, rows, kept, progress))
        return Examined(scores, _sheet(torch.cat(kept), rows, self._judging.columns))

    def _drawn(
        self, model: nn.Module, rows: list[int], kept: list[Tensor], progress: Progress | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of samples and classes; the first columns of every class are put aside on the way."""
        # A column is a seed, whatever the class: the same noise in every row.
        seeds = [seed for name in rows for seed in range(self._many(name))]
        labels = [name for name in rows for _ in range(self._many(name))]
        done = 0
        for images, asked in self._sampler.batches(model, self._task, labels, seeds, progress=progress):
            columns = torch.tensor(seeds[done : done + len(images)])
            kept.append(images[columns < self._judging.columns])
            done += len(images)
            yield images.to(self._device), asked

    def _many(self, name: int) -> int:
        """How many samples of a class are drawn."""
        return self._judging.of_forgotten if name in self._classes else self._judging.samples

    def _statistics(
        self, features: Features, split: ForgetSplit, file: Path | None, facts: dict[str, Any]
    ) -> FeatureStatistics:
        """Those of the real images: read back if they were kept, and of the same."""
        if file is not None and file.exists():
            # What is damaged or of something else is no loss: it is made anew.
            with suppress(GradPivotError):
                return FeatureStatistics.load(file, features.name, facts)
        made = statistics_of(self._real(split), features)
        if file is not None:
            made.save(file, facts)
        return made

    def _real(self, split: ForgetSplit) -> Iterator[Tensor]:
        """Real images of the classes that are kept."""
        indices = scored_part(split.retain_indices, self._judging.reference_images)
        loader = Loader(split.train, self._device, seed=0)
        for batch in loader.batches(cut(indices, _BATCH), epoch=-1):
            yield self._task.adapter(batch)[0]

    def _features(self, name: str, classifier: nn.Module) -> Features:
        if name == "inception":
            return inception(str(self._device))
        if not (hasattr(classifier, "features") and hasattr(classifier, "width")):
            raise GradPivotError(
                f"{type(classifier).__name__} has no 'features' and 'width', which in-domain distances are by; use "
                f"features=('inception',)"
            )
        return recogniser_features(classifier, self._judging.classifier, str(self._device))  # type: ignore[arg-type]


def _sheet(images: Tensor, rows: list[int], columns: int) -> Pictures:
    """Samples, row by row, as one picture."""
    _, channels, height, width = images.shape
    pixels = (
        (images.clamp(0, 1) * 255)
        .round()
        .to(torch.uint8)
        .expand(-1, 3 if channels == 1 else channels, -1, -1)
    )
    grid = pixels.reshape(len(rows), columns, 3, height, width).permute(0, 3, 1, 4, 2)
    sheet = np.ascontiguousarray(grid.reshape(len(rows) * height, columns * width, 3).numpy())
    return Pictures(
        png=base64.b64encode(encode_rgb(sheet)).decode("ascii"), rows=tuple(rows), columns=columns
    )
