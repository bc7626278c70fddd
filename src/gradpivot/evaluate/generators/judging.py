"""Settings for judging a generator's samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.evaluate.generators.scores import RESCALE

__all__ = ["FEATURES", "Judging"]

FEATURES = ("classifier", "inception")
"""Features for Fréchet distances: the judging classifier's last layer, or the Inception network of published FIDs."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """How samples are drawn and judged. All models of a problem start from the same noise.

    Attributes:
        classifier: The problem whose original model classifies the samples.
        least: Minimum accuracy of that classifier on real test images.
        features: Features for the distances from real images, from :data:`FEATURES`; fidelity uses the first.
        rescale: M in the fidelity 1 − min(FID/M, 1).
        samples: Samples per class.
        forgotten_samples: Samples per forgotten class, which determine the precision of UA; ``samples`` if None.
        columns: Samples per class to keep as pictures.
        reference_images: Maximum number of real images of the retained classes to compare with.
        sampler: ``ddim`` or ``ancestral``.
        steps: Denoising steps.
        guidance: s in ε̂ = (1 + s)·ε_c − s·ε_∅.
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
            raise GradPivotError(f"samples is {self.samples}; it must be at least 2")
        if self.reference_images < 2:
            raise GradPivotError(f"reference_images is {self.reference_images}; it must be at least 2")
        least = min(self.samples, self.of_forgotten)
        if not 0 <= self.columns <= least:
            raise GradPivotError(
                f"columns is {self.columns}; with {least} samples per class it must be between 0 and {least}"
            )
        if unknown := [name for name in self.features if name not in FEATURES]:
            raise GradPivotError(f"there are no features {unknown[0]!r}; choose from {', '.join(FEATURES)}")
        if not self.rescale > 0:
            raise GradPivotError(f"rescale is {self.rescale}; it must be greater than 0")

    @property
    def of_forgotten(self) -> int:
        """Samples per forgotten class."""
        return self.samples if self.forgotten_samples is None else self.forgotten_samples

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {**asdict(self), "features": list(self.features)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Judging:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**values, "features": tuple(values["features"])})
