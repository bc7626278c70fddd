"""Judge a generator's images: which classes a classifier recognises, and their Fréchet distance from real images.

One pass over the images computes everything, and memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.frechet import Features, FeatureStatistics, frechet_distance
from gradpivot.evaluate.generators.scores import RESCALE, Frechet, GenerationScores

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.models import Recogniser

__all__ = ["Judge", "Reference", "recogniser_features"]


class Reference(NamedTuple):
    """Feature statistics of real images of the retained classes."""

    features: Features
    statistics: FeatureStatistics


class Judge:
    """Judges the images of generators.

    Args:
        classifier: Maps images (n, c, h, w) in [0, 1] to logits; put in eval mode.
        accuracy: Its accuracy on real test images, recorded with every score.
        forgotten: The classes to forget.
        references: Statistics of real images of the other classes, one per kind of features; fidelity uses the first.
        rescale: M in the fidelity 1 − min(FID/M, 1).
    """

    def __init__(
        self,
        classifier: nn.Module,
        accuracy: float,
        forgotten: Sequence[int],
        references: Sequence[Reference] = (),
        rescale: float = RESCALE,
    ) -> None:
        self._classifier, self._accuracy = classifier.eval(), accuracy
        self._forgotten, self._references = tuple(forgotten), tuple(references)
        self._rescale = rescale

    def conditional(self, batches: Iterable[tuple[Tensor, Tensor]]) -> GenerationScores:
        """Judge the images of a class-conditional generator.

        Args:
            batches: Pairs of images (n, c, h, w) in [0, 1] and the classes they were conditioned on.
        """
        counts: dict[int, np.ndarray] = {}

        def kept() -> Iterable[tuple[Tensor, Tensor]]:
            import torch

            forgotten = torch.tensor(self._forgotten, dtype=torch.long)
            for images, asked in batches:
                asked = asked.cpu().long()
                labels, classes = self._labels(images)
                for name in np.unique(asked.numpy()).tolist():
                    row = counts.setdefault(name, np.zeros(classes, dtype=np.int64))
                    row += np.bincount(labels[(asked == name).numpy()], minlength=classes)
                yield images, ~torch.isin(asked, forgotten)

        distances = self._distances(kept())
        asked = sorted(counts)
        return self._scores([counts[name] for name in asked], asked, distances)

    def unconditional(self, batches: Iterable[Tensor]) -> GenerationScores:
        """Judge the images of an unconditional generator. All of them count in the distances.

        Args:
            batches: Images (n, c, h, w) in [0, 1].
        """
        counts: list[np.ndarray] = []

        def counted() -> Iterable[tuple[Tensor, Tensor]]:
            import torch

            for images in batches:
                labels, classes = self._labels(images)
                counts.append(np.bincount(labels, minlength=classes))
                yield images, torch.ones(len(images), dtype=torch.bool)

        distances = self._distances(counted())
        if not counts:
            raise GradPivotError("there are no images to judge; pass at least one batch")
        return self._scores([np.sum(counts, axis=0)], [], distances)

    def labels(self, images: Tensor) -> np.ndarray:
        """Predicted classes of images (n, c, h, w).

        Raises:
            NonFiniteError: If the images are not finite.
        """
        return self._labels(images)[0]

    def _scores(
        self, counts: Sequence[np.ndarray], asked: Sequence[int], distances: tuple[Frechet, ...]
    ) -> GenerationScores:
        return GenerationScores(
            called=tuple(tuple(row.tolist()) for row in counts),
            asked=tuple(asked),
            forgotten=self._forgotten,
            classifier_accuracy=self._accuracy,
            frechet=distances,
            rescale=self._rescale,
        )

    def _distances(self, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Frechet, ...]:
        """Distances from the references; each batch is (images, mask of those that count)."""
        import torch

        judged = [FeatureStatistics(r.features.name, r.features.dimension) for r in self._references]
        for images, counted in batches:
            if not counted.any():
                continue
            chosen = images[counted.to(images.device)]
            for reference, statistics in zip(self._references, judged, strict=True):
                with torch.no_grad():
                    features = reference.features.extract(chosen.to(reference.features.device))
                statistics.add(features.double().cpu().numpy())
        return tuple(
            frechet_distance(statistics, reference.statistics)
            for reference, statistics in zip(self._references, judged, strict=True)
        )

    def _labels(self, images: Tensor) -> tuple[np.ndarray, int]:
        import torch

        weight = next(self._classifier.parameters(), None)
        with torch.no_grad():
            logits = self._classifier(images if weight is None else images.to(weight.device))
        if not bool(logits.isfinite().all()):
            from gradpivot.errors import NonFiniteError

            raise NonFiniteError("the generated images are not finite: the generator's weights contain NaN or infinity")
        return logits.argmax(1).cpu().numpy(), logits.shape[1]


def recogniser_features(classifier: Recogniser, name: str, device: str = "cpu") -> Features:
    """A classifier's penultimate features: fast in-domain features, but no substitute for Inception's.

    Distances are comparable only between runs that use the same classifier.

    Args:
        classifier: Trained on the generator's data.
        name: Recorded with the distances, such as ``mnist-recogniser``.
        device: Device of the classifier.
    """
    return Features(f"in-domain {name}", classifier.width, classifier.eval().features, device)
