"""The Fréchet distance of two sets of images by the features of a network (FID; Heusel et al., NeurIPS 2017).

A set is known by the mean and covariance of its features, gathered batch by batch in float64: memory does not depend
on how many images there are. What a distance means depends on features and numbers of images, so it carries both.
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
    """Images to numbers.

    Attributes:
        name: What every distance by them is called with, such as ``inception-2015``.
        dimension: Numbers an image.
        extract: Images (n, c, h, w), as bytes or in [0, 1], to n×dimension.
        device: Where the images must be.
    """

    name: str
    dimension: int
    extract: Callable[[Tensor], Tensor]
    device: str = "cpu"


class FeatureStatistics:
    """Number, mean and covariance of the features seen so far.

    Batches are joined as Chan, Golub & LeVeque (1983) do: sums of squares about the mean, not about zero, so that
    features far from zero keep their digits. Memory: one d×d matrix, and a batch.

    Args:
        features: The name of the features; only statistics of the same ones can be compared.
        dimension: d.
    """

    def __init__(self, features: str, dimension: int) -> None:
        self.features, self.n = features, 0
        self.mean = np.zeros(dimension)
        self._squares = np.zeros((dimension, dimension))

    @property
    def dimension(self) -> int:
        """Numbers an image, d."""
        return len(self.mean)

    @property
    def covariance(self) -> np.ndarray:
        """The unbiased estimate, d×d.

        Raises:
            GradPivotError: for fewer than two images.
        """
        if self.n < 2:
            raise GradPivotError(f"a covariance needs 2 images or more, and there are {self.n}; give more")
        return self._squares / (self.n - 1)

    def add(self, batch: np.ndarray) -> None:
        """Take in the features of some images, n×d.

        Raises:
            GradPivotError: if the shape is another.
            NonFiniteError: if a feature is NaN or infinite.
        """
        batch = np.asarray(batch, dtype=np.float64)
        if batch.ndim != 2 or batch.shape[1] != self.dimension:
            raise GradPivotError(
                f"the features {self.features} have the shape {batch.shape}; expected n×{self.dimension}"
            )
        if len(batch) == 0:
            return
        mean = batch.mean(axis=0)
        if not np.isfinite(mean).all():
            raise NonFiniteError(f"the features {self.features} of an image are not finite")
        centred = batch - mean
        self._join(len(batch), mean, centred.T @ centred)

    def merge(self, other: FeatureStatistics) -> None:
        """Take in what was gathered elsewhere.

        Raises:
            GradPivotError: if those are of other features.
        """
        _refuse_others(self, other)
        if other.n:
            self._join(other.n, other.mean, other._squares)

    def _join(self, n: int, mean: np.ndarray, squares: np.ndarray) -> None:
        total = self.n + n
        shift = mean - self.mean
        self._squares += squares + np.outer(shift, shift) * (self.n * n / total)
        self.mean = self.mean + shift * (n / total)
        self.n = total

    def save(self, path: str | Path, facts: Mapping[str, Any] | None = None) -> None:
        """Write them as safetensors, atomically: features of Inception take minutes, and a reference stays the same.

        Args:
            path: Where to.
            facts: What they are of, such as the data's digest and the classes; :meth:`load` compares.
        """
        from safetensors.numpy import save_file

        from gradpivot.runtime import replacing

        told = {"features": self.features, "n": str(self.n), "facts": json.dumps(dict(facts or {}), sort_keys=True)}
        with replacing(path) as temporary:
            save_file({"mean": self.mean, "squares": self._squares}, temporary, metadata=told)

    @classmethod
    def load(cls, path: str | Path, features: str, facts: Mapping[str, Any] | None = None) -> FeatureStatistics:
        """Read back what :meth:`save` wrote.

        Raises:
            GradPivotError: if the file is missing or damaged, or of other features or facts.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="np") as file:
                told, mean, squares = (file.metadata() or {}, file.get_tensor("mean"), file.get_tensor("squares"))
            found = {"features": told["features"], **json.loads(told["facts"])}
            count = int(told["n"])
        except FileNotFoundError:
            raise GradPivotError(f"there are no statistics in {path}") from None
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise GradPivotError(f"the statistics in {path} are damaged ({error}); delete the file") from None
        if found != (asked := {"features": features, **(facts or {})}):
            raise GradPivotError(f"the statistics in {path} are of {found}, not {asked}; delete it or name another")
        loaded = cls(features, len(mean))
        loaded.n, loaded.mean, loaded._squares = count, mean, squares
        return loaded


def frechet_distance(judged: FeatureStatistics, reference: FeatureStatistics) -> Frechet:
    """‖μ_a − μ_b‖² + tr Σ_a + tr Σ_b − 2 tr (Σ_a^½ Σ_b Σ_a^½)^½ (Dowson & Landau, 1982).

    With Σ = LLᵀ the last trace is the sum of the singular values of L_aᵀL_b: symmetric in both sets, never complex, and
    without the root of a product, which costs half the digits where covariances are singular (fewer images than
    features). Below what rounding can tell apart the distance is 0. Time O(d³).

    Raises:
        GradPivotError: if the features are not the same, or a set has fewer than two images.
    """
    _refuse_others(judged, reference)
    shift = float(np.sum((judged.mean - reference.mean) ** 2))
    spread = float(np.trace(judged.covariance) + np.trace(reference.covariance))
    shared = np.linalg.svd(_factor(judged).T @ _factor(reference), compute_uv=False).sum()
    distance = shift + spread - 2 * float(shared)
    rounding = 4 * judged.dimension * np.finfo(np.float64).eps * (shift + spread)
    return Frechet(0.0 if distance <= rounding else distance, judged.features, judged.n, reference.n)


def _factor(statistics: FeatureStatistics) -> np.ndarray:
    """L with LLᵀ = Σ, d×r; n images span n − 1 directions at most, and what rounding puts into others is left out.

    A variance that is zero comes out as some 1e-16 of the largest, and its root as 1e-8 of it.
    """
    values, vectors = np.linalg.eigh(statistics.covariance)
    rank = min(statistics.dimension, statistics.n - 1)
    rounding = statistics.dimension * np.finfo(np.float64).eps * values[-1]
    kept = np.where(values > rounding, values, 0.0)
    factor: np.ndarray = vectors[:, -rank:] * np.sqrt(kept[-rank:])
    return factor


def statistics_of(batches: Iterable[Tensor], features: Features) -> FeatureStatistics:
    """The statistics of images that come in batches, such as a generator's or a data set's."""
    import torch

    gathered = FeatureStatistics(features.name, features.dimension)
    with torch.no_grad():
        for images in batches:
            gathered.add(features.extract(images.to(features.device)).double().cpu().numpy())
    return gathered


def inception(device: str = "cpu") -> Features:
    """The 2,048 pool features of Inception's graph of 2015, which published FIDs are by.

    From the cache ('gradpivot data get fid-inception'). Images are resized to 299×299, bilinear; grey ones are given to
    all three channels. Ten images a second on two cores.

    Raises:
        GradPivotError: if the weights are not on this machine, or damaged.
    """
    import io
    import warnings

    import torch

    from gradpivot.data import cached_content

    with warnings.catch_warnings():
        # The weights come as TorchScript and as nothing else.
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


def _refuse_others(one: FeatureStatistics, other: FeatureStatistics) -> None:
    if (one.features, one.dimension) != (other.features, other.dimension):
        raise GradPivotError(
            f"statistics of {one.features} ({one.dimension} numbers) and of {other.features} ({other.dimension}) "
            f"cannot be compared; take both by the same features"
        )
