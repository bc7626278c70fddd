"""Fréchet distance between two sets of images in a network's feature space (FID; Heusel et al., NeurIPS 2017).

Each set is summarised by the mean and covariance of its features, accumulated batch by batch in float64, so memory does
not grow with the number of images. A distance depends on the features and the numbers of images, so it records both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.generators.scores import Frechet

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["FeatureStatistics", "Features", "frechet_distance", "inception", "statistics_of"]


@dataclass(frozen=True)
class Features:
    """A feature extractor.

    Attributes:
        name: Recorded with every distance, such as ``inception-2015``.
        dimension: Features per image.
        extract: Maps images (n, c, h, w), uint8 or in [0, 1], to n×dimension.
        device: Device of the images.
    """

    name: str
    dimension: int
    extract: Callable[[Tensor], Tensor]
    device: str = "cpu"


class FeatureStatistics:
    """Count, mean and covariance of the features seen so far.

    Batches are merged as in Chan, Golub & LeVeque (1983), with sums of squares about the mean, to preserve precision
    for features far from zero. Memory: one d×d matrix and a batch.

    Args:
        features: Name of the features; only statistics of the same features can be compared.
        dimension: Features per image, d.
    """

    def __init__(self, features: str, dimension: int) -> None:
        self.features, self.n = features, 0
        self.mean = np.zeros(dimension)
        self._squares = np.zeros((dimension, dimension))

    @property
    def dimension(self) -> int:
        """Features per image, d."""
        return len(self.mean)

    @property
    def covariance(self) -> np.ndarray:
        """Unbiased estimate, d×d.

        Raises:
            GradPivotError: If there are fewer than two images.
        """
        if self.n < 2:
            raise GradPivotError(f"there are {self.n} images; a covariance needs at least 2")
        return self._squares / (self.n - 1)

    def add(self, batch: np.ndarray) -> None:
        """Add a batch of features, n×d.

        Raises:
            GradPivotError: If the shape does not match.
            NonFiniteError: If a feature is NaN or infinite.
        """
        batch = np.asarray(batch, dtype=np.float64)
        if batch.ndim != 2 or batch.shape[1] != self.dimension:
            raise GradPivotError(f"{self.features} features have shape {batch.shape}; expected n×{self.dimension}")
        if len(batch) == 0:
            return
        mean = batch.mean(axis=0)
        if not np.isfinite(mean).all():
            raise NonFiniteError(f"the {self.features} features of an image are not finite")
        centred = batch - mean
        self._combine(len(batch), mean, centred.T @ centred)

    def merge(self, other: FeatureStatistics) -> None:
        """Add the statistics of other images.

        Raises:
            GradPivotError: If the features differ.
        """
        _check_comparable(self, other)
        if other.n:
            self._combine(other.n, other.mean, other._squares)

    def _combine(self, n: int, mean: np.ndarray, squares: np.ndarray) -> None:
        total = self.n + n
        shift = mean - self.mean
        self._squares += squares + np.outer(shift, shift) * (self.n * n / total)
        self.mean = self.mean + shift * (n / total)
        self.n = total

    def save(self, path: str | Path, facts: Mapping[str, Any] | None = None) -> None:
        """Write the statistics to a safetensors file, atomically.

        Args:
            path: File to write.
            facts: Origin of the images, such as the data digest and the classes; checked by :meth:`load`.
        """
        from safetensors.numpy import save

        from gradpivot.runtime import replacing

        metadata = {"features": self.features, "n": str(self.n), "facts": json.dumps(dict(facts or {}), sort_keys=True)}
        with replacing(path) as temporary:
            temporary.write_bytes(save({"mean": self.mean, "squares": self._squares}, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path, features: str, facts: Mapping[str, Any] | None = None) -> FeatureStatistics:
        """Inverse of :meth:`save`.

        Raises:
            GradPivotError: If the file is missing or damaged, or its features or facts differ.
        """
        from safetensors import SafetensorError, safe_open

        from gradpivot.runtime import parse_json

        try:
            with safe_open(str(path), framework="np") as file:
                metadata, mean, squares = file.metadata() or {}, file.get_tensor("mean"), file.get_tensor("squares")
            found = {"features": metadata["features"], **parse_json(metadata["facts"])}
            count = int(metadata["n"])
        except FileNotFoundError:
            raise GradPivotError(f"there is no file {path}") from None
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise GradPivotError(f"the statistics in {path} are damaged ({error}); delete the file") from None
        if found != (expected := {"features": features, **(facts or {})}):
            raise GradPivotError(
                f"{path} holds statistics of {found}, not {expected}; delete the file or use another path"
            )
        loaded = cls(features, len(mean))
        loaded.n, loaded.mean, loaded._squares = count, mean, squares
        return loaded


def frechet_distance(judged: FeatureStatistics, reference: FeatureStatistics) -> Frechet:
    """‖μ_a − μ_b‖² + tr Σ_a + tr Σ_b − 2 tr (Σ_a^½ Σ_b Σ_a^½)^½ (Dowson & Landau, 1982).

    With Σ = LLᵀ, the last trace is the sum of the singular values of L_aᵀL_b. This is symmetric and never complex, and
    avoids the square root of a product, which loses half the digits for singular covariances (fewer images than
    features). Distances below rounding error are 0. Time O(d³).

    Raises:
        GradPivotError: If the features differ, or a set has fewer than two images.
    """
    _check_comparable(judged, reference)
    shift = float(np.sum((judged.mean - reference.mean) ** 2))
    spread = float(np.trace(judged.covariance) + np.trace(reference.covariance))
    shared = np.linalg.svd(_factor(judged).T @ _factor(reference), compute_uv=False).sum()
    distance = shift + spread - 2 * float(shared)
    rounding = 4 * judged.dimension * np.finfo(np.float64).eps * (shift + spread)
    return Frechet(0.0 if distance <= rounding else distance, judged.features, judged.n, reference.n)


def _factor(statistics: FeatureStatistics) -> np.ndarray:
    """L with LLᵀ = Σ, d×r, where r ≤ n − 1.

    Eigenvalues below rounding error are dropped: a zero variance comes out as about 1e-16 of the largest, and its root
    as 1e-8 of it.
    """
    values, vectors = np.linalg.eigh(statistics.covariance)
    rank = min(statistics.dimension, statistics.n - 1)
    rounding = statistics.dimension * np.finfo(np.float64).eps * values[-1]
    kept = np.where(values > rounding, values, 0.0)
    factor: np.ndarray = vectors[:, -rank:] * np.sqrt(kept[-rank:])
    return factor


def statistics_of(batches: Iterable[Tensor], features: Features) -> FeatureStatistics:
    """Feature statistics of batches of images."""
    import torch

    gathered = FeatureStatistics(features.name, features.dimension)
    with torch.no_grad():
        for images in batches:
            gathered.add(features.extract(images.to(features.device)).double().cpu().numpy())
    return gathered


def inception(device: str = "cpu") -> Features:
    """The 2,048 pool features of the 2015 Inception graph, the ones behind published FIDs.

    Needs ``gradpivot data get fid-inception``. Resizes images to 299×299 (bilinear) and repeats grey ones over three
    channels. About ten images per second on two cores.

    Raises:
        GradPivotError: If the weights are missing or damaged.
    """
    import io
    import warnings

    import torch

    from gradpivot.data import cached_content

    with warnings.catch_warnings():
        # The weights are only published as TorchScript.
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", DeprecationWarning)
        network = torch.jit.load(  # type: ignore[no-untyped-call]
            io.BytesIO(cached_content("fid-inception")), map_location=device
        )
    return Features("inception-2015", 2048, _on_inception(network.eval()), device)


def _on_inception(network: nn.Module) -> Callable[[Tensor], Tensor]:
    from torch.nn.functional import interpolate

    def extract(images: Tensor) -> Tensor:
        scaled = images.float() if images.is_floating_point() else images.float() / 255
        if scaled.shape[1] == 1:
            scaled = scaled.expand(-1, 3, -1, -1)
        resized = interpolate(scaled, size=(299, 299), mode="bilinear", align_corners=False)
        features: Tensor = network((resized * 255 - 128) / 128)
        return features

    return extract


def _check_comparable(one: FeatureStatistics, other: FeatureStatistics) -> None:
    if (one.features, one.dimension) != (other.features, other.dimension):
        raise GradPivotError(
            f"cannot compare {one.features} features (dimension {one.dimension}) with {other.features} features "
            f"(dimension {other.dimension}); use the same features for both"
        )
