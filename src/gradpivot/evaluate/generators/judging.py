"""How the samples of a generator are judged: who says what they show, how they are drawn, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import RESCALE

__all__ = ["FEATURES", "Judging"]

FEATURES = ("classifier", "inception")
"""What Fréchet distances can be by: the judging classifier's last layer, or the Inception network of published FIDs."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """The examination that every model of a problem takes, with the same noise.

    Attributes:
        classifier: The problem whose original model says what a sample shows.
        least: Accuracy on real test images below which its word counts for nothing.
        features: What distances from real images are by, each of :data:`FEATURES`; fidelity is by the first.
        rescale: M of the fidelity 1 − min(FID/M, 1).
        samples: Samples a class.
        forgotten_samples: Samples of a forgotten class, where more are wanted: UA is a share of these alone. As many as
            of any other if None.
        columns: How many of them, of every class, are kept as pictures.
        reference_images: Real images of the kept classes that the samples are compared with, at most.
        sampler: ``ddim`` or ``ancestral``.
        steps: Denoising steps.
        guidance: s of ε̂ = (1 + s)·ε_c − s·ε_∅.
    """

    classifier: str
    least: float = 0.99
    features: tuple[str, ...] = ("classifier",)
    rescale: float = RESCALE
    samples: int = 50
    forgotten_samples: int | None = None
    columns: int = 8
    reference_images: int = 10_000
    sampler: str = "ddim"
    steps: int = 50
    guidance: float = 2.0

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise GradPivotError(f"samples is {self.samples}; a distance needs 2 of a class or more")
        if self.reference_images < 2:
            raise GradPivotError(f"reference_images is {self.reference_images}; a distance needs 2 or more")
        least = min(self.samples, self.of_forgotten)
        if not 0 <= self.columns <= least:
            raise GradPivotError(f"columns is {self.columns}; of {least} samples a class 0 to {least} can be kept")
        if unknown := [name for name in self.features if name not in FEATURES]:
            raise GradPivotError(f"there are no features {unknown[0]!r}; choose from {', '.join(FEATURES)}")
        if not self.rescale > 0:
            raise GradPivotError(f"rescale is {self.rescale}; give a distance > 0 that counts as no fidelity")

    @property
    def of_forgotten(self) -> int:
        """Samples of a forgotten class."""
        return self.samples if self.forgotten_samples is None else self.forgotten_samples

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {**asdict(self), "features": list(self.features)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Judging:
        """Read back what :meth:`to_dict` wrote."""
        return cls(**{**values, "features": tuple(values["features"])})
