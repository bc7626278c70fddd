"""The scores of one generator as plain JSON-able numbers. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scores import wilson_interval
from gradpivot.runtime import Number, checked

__all__ = ["RESCALE", "Frechet", "GenerationScores"]

RESCALE = 500.0
"""M in 1 − min(FID/M, 1). The paper does not state it, so it is recorded with every score."""


@dataclass(frozen=True)
class Frechet:
    """A Fréchet distance.

    Attributes:
        value: The (squared) distance; 0 for equal statistics.
        features: Name of the features.
        n: Number of judged images.
        n_reference: Number of reference images.
    """

    value: float
    features: str
    n: int
    n_reference: int

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.features}, N = {self.n:,} against {self.n_reference:,})"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class GenerationScores:
    """The scores of one generator.

    Attributes:
        called: Confusion matrix: images requested as class *row* that the classifier calls *column*. An unconditional
            generator has one row, and ``asked`` is empty.
        asked: Requested class of each row.
        forgotten: The classes to forget.
        classifier_accuracy: The classifier's accuracy on real test images.
        frechet: Distances from real images of the retained classes, without the images of forgotten classes.
        rescale: M of :attr:`fidelity`.
    """

    metrics: ClassVar[tuple[str, ...]] = ("fidelity", "ua")
    """The metrics used by Δ and H."""

    called: tuple[tuple[int, ...], ...]
    asked: tuple[int, ...]
    forgotten: tuple[int, ...]
    classifier_accuracy: float
    frechet: tuple[Frechet, ...] = ()
    rescale: float = RESCALE

    @classmethod
    def of_diverged(cls, forgotten: Sequence[int]) -> GenerationScores:
        """The scores assigned to a diverged run: no images, and all fractions 0."""
        return cls(called=(), asked=(), forgotten=tuple(forgotten), classifier_accuracy=0.0)

    @property
    def n(self) -> int:
        """Number of judged images."""
        return sum(map(sum, self.called))

    def share_called(self, name: int) -> float:
        """Fraction of all images that the classifier calls ``name``."""
        return sum(row[name] for row in self.called) / self.n

    def recognised(self) -> dict[int, float]:
        """For each class, the fraction of its images that the classifier recognises."""
        return {name: row[name] / sum(row) for name, row in zip(self.asked, self.called, strict=True) if sum(row)}

    def class_interval(self, name: int) -> tuple[float, float]:
        """95 % Wilson interval of a class's :meth:`recognised`, or :meth:`share_called` if unconditional."""
        if not self.asked:
            return wilson_interval(self.share_called(name), self.n)
        return wilson_interval(self.recognised()[name], sum(self.called[self.asked.index(name)]))

    @property
    def ra(self) -> float:
        """Fraction of images of the retained classes that are recognised as the requested class."""
        return _share(*self._right(self._rows(forgotten=False)))

    @property
    def ua(self) -> float:
        """One minus the fraction of images of the forgotten classes that are recognised; 0 without images.

        Raises:
            GradPivotError: If there are images, but none of a forgotten class.
        """
        if self.n == 0:
            return 0.0
        right, made = self._right(self._rows(forgotten=True))
        if made == 0:
            raise GradPivotError(
                f"UA is undefined: no images of the forgotten classes {list(self.forgotten)} were judged; sample some"
            )
        return 1 - right / made

    @property
    def fidelity(self) -> float:
        """1 − min(FID/M, 1) with the first distance; 0 without images.

        Raises:
            GradPivotError: If there is no distance.
        """
        if self.n == 0:
            return 0.0
        if not self.frechet:
            raise GradPivotError("there is no Fréchet distance; give the judge a reference of real images")
        return 1 - min(self.frechet[0].value / self.rescale, 1.0)

    def vector(self, metrics: tuple[str, ...] = metrics) -> tuple[float, ...]:
        """The named metrics, in that order."""
        return tuple(float(getattr(self, name)) for name in metrics)

    def interval(self, metric: str) -> tuple[float, float]:
        """95 % Wilson interval of ``ra`` or ``ua``."""
        _, made = self._right(self._rows(forgotten=metric == "ua"))
        return wilson_interval(float(getattr(self, metric)), made)

    def _rows(self, *, forgotten: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
        pairs = zip(self.asked, self.called, strict=False)
        return (pair for pair in pairs if (pair[0] in self.forgotten) == forgotten)

    @staticmethod
    def _right(rows: Iterator[tuple[int, tuple[int, ...]]]) -> tuple[int, int]:
        """Number of recognised images, and of all images."""
        counted = [(row[name], sum(row)) for name, row in rows]
        return sum(right for right, _ in counted), sum(made for _, made in counted)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary, fractions throughout."""
        return {
            "called": [list(row) for row in self.called],
            "asked": list(self.asked),
            "forgotten": list(self.forgotten),
            "classifier_accuracy": self.classifier_accuracy,
            "frechet": [one.to_dict() for one in self.frechet],
            "rescale": self.rescale,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationScores:
        """Inverse of :meth:`to_dict`.

        Raises:
            ValueError, TypeError: If a value is missing or of another type, or the matrix does not fit the classes.
        """
        values = checked(
            {"rescale": RESCALE, **values}, called=list, asked=list, forgotten=list, classifier_accuracy=Number,
            frechet=list, rescale=Number,
        )  # fmt: skip
        called = tuple(tuple(map(int, row)) for row in values["called"])
        asked, forgotten = (tuple(map(int, values[name])) for name in ("asked", "forgotten"))
        width = len(called[0]) if called else 0
        is_matrix = all(len(row) == width and min(row, default=0) >= 0 for row in called)
        if not is_matrix or (asked and (len(asked) != len(called) or not 0 <= min(asked) <= max(asked) < width)):
            raise ValueError(
                f"called is not a matrix of counts with one row for each of {len(asked)} requested classes"
            )
        if not values["rescale"] > 0:
            raise ValueError(f"rescale is {values['rescale']!r}; it must be above 0")
        kinds: dict[str, Any] = {"value": Number, "features": str, "n": int, "n_reference": int}
        return cls(
            called=called,
            asked=asked,
            forgotten=forgotten,
            classifier_accuracy=values["classifier_accuracy"],
            frechet=tuple(Frechet(**checked(one, **kinds)) for one in values["frechet"]),
            rescale=values["rescale"],
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
