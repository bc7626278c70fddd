"""The scores of one generator: plain numbers, no torch, ready for JSON.

What a classifier called the images that were asked for, and how far those of the kept classes are from real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.scores import wilson_interval

__all__ = ["RESCALE", "Frechet", "GenerationScores"]

RESCALE = 500.0
"""M in 1 − min(FID/M, 1): the paper does not give it, so it stands beside every number that depends on it."""


@dataclass(frozen=True)
class Frechet:
    """A Fréchet distance with what it depends on.

    Attributes:
        value: The (squared) distance; 0 for equal statistics.
        features: By which features.
        n: Images that were judged.
        n_reference: Images they were compared with.
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
    """What was made of what was asked for.

    Attributes:
        called: How often images of class *row* were called *column* by the classifier. A generator that is not asked
            for classes has one row, and ``asked`` is empty.
        asked: The classes that the rows were asked for.
        forgotten: The classes that were to be forgotten.
        classifier_accuracy: The classifier's share of right answers on real test images.
        frechet: Distances of the images that were not asked for as a forgotten class from real ones of the classes
            that are to be kept.
        rescale: M of :attr:`fidelity`.
    """

    metrics: ClassVar[tuple[str, ...]] = ("fidelity", "ua")
    """What Δ and H of generators are taken on (spec: evaluation)."""

    called: tuple[tuple[int, ...], ...]
    asked: tuple[int, ...]
    forgotten: tuple[int, ...]
    classifier_accuracy: float
    frechet: tuple[Frechet, ...] = ()
    rescale: float = RESCALE

    @classmethod
    def of_diverged(cls, forgotten: Sequence[int]) -> GenerationScores:
        """The scores a diverged run counts with: nothing was made, and every share is 0."""
        return cls(called=(), asked=(), forgotten=tuple(forgotten), classifier_accuracy=0.0)

    @property
    def n(self) -> int:
        """Images that were judged."""
        return sum(map(sum, self.called))

    def share_called(self, name: int) -> float:
        """The share of all images that the classifier calls ``name``."""
        return sum(row[name] for row in self.called) / self.n

    def recognised(self) -> dict[int, float]:
        """For each class the share of its images that the classifier recognises as that class."""
        return {name: row[name] / sum(row) for name, row in zip(self.asked, self.called, strict=True) if sum(row)}

    def class_interval(self, name: int) -> tuple[float, float]:
        """A 95 % Wilson interval of :meth:`recognised` of a class; of :meth:`share_called` where none was asked for."""
        if not self.asked:
            return wilson_interval(self.share_called(name), self.n)
        return wilson_interval(self.recognised()[name], sum(self.called[self.asked.index(name)]))

    @property
    def ra(self) -> float:
        """The share of images of the kept classes that are recognised as what was asked for."""
        return _share(*self._right(self._rows(forgotten=False)))

    @property
    def ua(self) -> float:
        """1 − the share of images of the forgotten classes that are recognised as such; 0 if nothing was made.

        Raises:
            GradPivotError: if images were made, and none of a forgotten class.
        """
        if self.n == 0:
            return 0.0
        right, made = self._right(self._rows(forgotten=True))
        if made == 0:
            raise GradPivotError(
                f"no image of the forgotten classes {list(self.forgotten)} was judged; make some, UA is of these"
            )
        return 1 - right / made

    @property
    def fidelity(self) -> float:
        """1 − min(FID/M, 1) by the first of the distances; 0 if nothing was made.

        Raises:
            GradPivotError: if no distance was taken.
        """
        if self.n == 0:
            return 0.0
        if not self.frechet:
            raise GradPivotError("no Fréchet distance was taken; give the judge a reference of real images")
        return 1 - min(self.frechet[0].value / self.rescale, 1.0)

    def vector(self, metrics: tuple[str, ...] = metrics) -> tuple[float, ...]:
        """The scores named, in that order."""
        return tuple(float(getattr(self, name)) for name in metrics)

    def interval(self, metric: str) -> tuple[float, float]:
        """A 95 % Wilson interval of ``ra`` or ``ua``, from the number of images it is a share of."""
        _, made = self._right(self._rows(forgotten=metric == "ua"))
        return wilson_interval(float(getattr(self, metric)), made)

    def _rows(self, *, forgotten: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
        pairs = zip(self.asked, self.called, strict=False)
        return (pair for pair in pairs if (pair[0] in self.forgotten) == forgotten)

    @staticmethod
    def _right(rows: Iterator[tuple[int, tuple[int, ...]]]) -> tuple[int, int]:
        """How many were recognised, and how many there are."""
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
        """Read back what :meth:`to_dict` wrote."""
        return cls(
            called=tuple(tuple(row) for row in values["called"]),
            asked=tuple(values["asked"]),
            forgotten=tuple(values["forgotten"]),
            classifier_accuracy=values["classifier_accuracy"],
            frechet=tuple(Frechet(**one) for one in values["frechet"]),
            rescale=values.get("rescale", RESCALE),
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
