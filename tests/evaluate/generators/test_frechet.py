"""The Fréchet distance: against references, by its mathematics, and in constant memory."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings, strategies as st

from gradpivot.data.download import cache
from gradpivot.data.download.cache import write_manifest
from gradpivot.data.download.catalogue import ENTRIES
from gradpivot.errors import GradPivotError, NonFiniteError
from gradpivot.evaluate.generators.frechet import (
    Features,
    FeatureStatistics,
    frechet_distance,
    inception,
    statistics_of,
)
from gradpivot.evaluate.generators.scores import Frechet


def gathered(features: np.ndarray, batch: int = 1000) -> FeatureStatistics:
    statistics = FeatureStatistics("test", features.shape[1])
    for start in range(0, len(features), batch):
        statistics.add(features[start : start + batch])
    return statistics


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return frechet_distance(gathered(a), gathered(b)).value


def drawn(seed: int, n: int, d: int, *, rank: int | None = None, offset: float = 0.0) -> np.ndarray:
    """Correlated features with eigenvalues over six orders of magnitude, as networks have."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(rank or d, d)) * np.logspace(0, -3, rank or d)[:, None]
    return generator.normal(size=(n, rank or d)) @ mixing + offset + generator.normal(size=d)


def by_square_root(a: np.ndarray, b: np.ndarray) -> float:
    """The usual implementation (Heusel et al.'s): scipy's root of the product of the covariances."""
    first, second = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(first @ second).real
    shift = a.mean(0) - b.mean(0)
    return float(shift @ shift + np.trace(first) + np.trace(second) - 2 * np.trace(root))


@pytest.mark.parametrize(("n", "m", "d"), [(500, 400, 8), (2000, 1500, 64), (5000, 3000, 128)])
def test_agrees_with_the_usual_implementation(n: int, m: int, d: int) -> None:
    a, b = drawn(0, n, d), drawn(1, m, d)
    assert distance(a, b) == pytest.approx(by_square_root(a, b), rel=1e-6)


@pytest.mark.parametrize(("n", "d"), [(2000, 32), (100, 64)])
def test_agrees_with_torchmetrics(n: int, d: int) -> None:
    fid = pytest.importorskip("torchmetrics.image.fid", reason="torchmetrics is not installed (dev extra)")
    a, b = drawn(2, n, d), drawn(3, n, d)

    class Given(torch.nn.Module):
        """Features that are there already, for a metric that asks for a network of images."""

        num_features = d

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, 0, 0]

    metric = fid.FrechetInceptionDistance(Given(), input_img_size=(1, 1, d), normalize=True).set_dtype(torch.float64)
    metric.inception = Given()
    # With normalize images are turned into bytes; the features go in as they are instead.
    metric.normalize = False
    metric.update(torch.from_numpy(b)[:, None, None], real=True)
    metric.update(torch.from_numpy(a)[:, None, None], real=False)
    assert distance(a, b) == pytest.approx(float(metric.compute()), rel=1e-3)


def test_singular_covariances_agree_in_more_digits_than_the_root_of_their_product() -> None:
    """Fewer images than features: both sets in one space of 20 dimensions, where the distance can be had exactly."""
    generator = np.random.default_rng(0)
    turn = np.linalg.qr(generator.normal(size=(200, 200)))[0][:, :20]
    a, b = drawn(4, 60, 20), drawn(5, 50, 20)
    assert distance(a @ turn.T, b @ turn.T) == pytest.approx(by_square_root(a, b), rel=1e-7)


@given(means=st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_closed_form_for_diagonal_covariances(means: list[tuple[float, float]], seed: int) -> None:
    """Σ (μ_a − μ_b)² + (σ_a − σ_b)²; the points ±√(n/…)·e_i about a mean have exactly such a covariance."""
    d = len(means)
    generator = np.random.default_rng(seed)
    widths = generator.uniform(0, 3, size=(2, d))
    widths[generator.uniform(size=(2, d)) < 0.2] = 0
    cross = np.vstack([np.eye(d), -np.eye(d)]) * np.sqrt((2 * d - 1) / 2)
    mean_a, mean_b = np.array(means).T
    a, b = mean_a + cross * widths[0], mean_b + cross * widths[1]
    expected = ((mean_a - mean_b) ** 2).sum() + ((widths[0] - widths[1]) ** 2).sum()
    assert distance(a, b) == pytest.approx(expected, rel=1e-9, abs=1e-7)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 12), n=st.integers(2, 40), m=st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_symmetric_and_never_negative(seed: int, d: int, n: int, m: int) -> None:
    a, b = drawn(seed, n, d), drawn(seed + 1, m, d)
    assert distance(a, b) >= 0
    assert distance(a, b) == pytest.approx(distance(b, a), rel=1e-9, abs=1e-9)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 40), n=st.integers(2, 60), offset=st.floats(-1e4, 1e4))
@settings(max_examples=60, deadline=None)
def test_zero_for_identical_sets(seed: int, d: int, n: int, offset: float) -> None:
    """Exactly, also with fewer images than features and with features far from zero."""
    a = drawn(seed, n, d, offset=offset)
    assert distance(a, a) == 0.0


@given(seed=st.integers(0, 10_000), n=st.integers(2, 200), cuts=st.lists(st.integers(1, 50), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_batches_matter(seed: int, n: int, cuts: list[int]) -> None:
    features = drawn(seed, n, 5, offset=1e3)
    parts = np.split(np.random.default_rng(seed).permutation(features), np.cumsum(cuts).clip(0, n))
    one, many = gathered(features, n), FeatureStatistics("test", 5)
    for part in parts:
        many.add(part)
    assert many.n == n
    np.testing.assert_allclose(many.mean, one.mean, rtol=1e-12)
    np.testing.assert_allclose(many.covariance, one.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.covariance, np.cov(features, rowvar=False), rtol=1e-9, atol=1e-12)


def test_statistics_gathered_apart_are_merged() -> None:
    features = drawn(0, 101, 7)
    first, second = gathered(features[:40]), gathered(features[40:])
    first.merge(second)
    first.merge(FeatureStatistics("test", 7))
    whole = gathered(features)
    assert first.n == 101
    np.testing.assert_allclose(first.covariance, whole.covariance, rtol=1e-10, atol=1e-14)


def test_features_far_from_zero_keep_their_digits() -> None:
    """Sums of squares about zero would lose all of them here."""
    features = drawn(0, 500, 4)
    shifted = gathered(features + 1e8)
    np.testing.assert_allclose(shifted.covariance, np.cov(features, rowvar=False), rtol=1e-4, atol=1e-7)


def test_memory_does_not_depend_on_the_number_of_images() -> None:
    def peak(batches: int) -> int:
        batch = drawn(0, 100, 50)
        tracemalloc.start()
        statistics = FeatureStatistics("test", 50)
        for _ in range(batches):
            statistics.add(batch)
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reached

    peak(2)
    assert peak(400) < 1.2 * peak(4)


def test_the_distance_says_by_what_and_of_how_many() -> None:
    told = frechet_distance(gathered(drawn(0, 300, 3)), gathered(drawn(1, 1200, 3)))
    assert (told.features, told.n, told.n_reference) == ("test", 300, 1200)
    assert "test, N = 300 against 1,200" in str(told)
    assert Frechet(**told.to_dict()) == told


def test_statistics_are_kept_on_disk(tmp_path) -> None:
    statistics = gathered(drawn(0, 30, 4))
    statistics.save(tmp_path / "reference.safetensors", {"data": "abc", "without": [3]})
    again = FeatureStatistics.load(tmp_path / "reference.safetensors", "test", {"data": "abc", "without": [3]})
    assert again.n == 30
    assert frechet_distance(statistics, again).value == 0
    np.testing.assert_array_equal(again.covariance, statistics.covariance)
    with pytest.raises(GradPivotError, match=r"holds statistics of .*'without': \[3\].*, not .*'without': \[4\]"):
        FeatureStatistics.load(tmp_path / "reference.safetensors", "test", {"data": "abc", "without": [4]})
    with pytest.raises(GradPivotError, match="there is no file"):
        FeatureStatistics.load(tmp_path / "nothing", "test")
    (tmp_path / "cut").write_bytes((tmp_path / "reference.safetensors").read_bytes()[:50])
    with pytest.raises(GradPivotError, match="damaged"):
        FeatureStatistics.load(tmp_path / "cut", "test")


def test_what_cannot_be_compared_is_refused() -> None:
    some = gathered(drawn(0, 10, 3))
    with pytest.raises(GradPivotError, match="cannot compare"):
        frechet_distance(some, FeatureStatistics("other", 3))
    with pytest.raises(GradPivotError, match="there are 1 images; a covariance needs at least 2"):
        frechet_distance(some, gathered(drawn(0, 1, 3)))
    with pytest.raises(GradPivotError, match="expected n×3"):
        some.add(np.zeros((2, 4)))
    with pytest.raises(NonFiniteError):
        some.add(np.full((2, 3), np.nan))


def test_images_go_through_the_features_in_batches() -> None:
    features = Features("brightness", 2, lambda images: torch.stack([images.mean((1, 2, 3)), images[:, 0, 0, 0]], 1))
    images = torch.rand(25, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    told = statistics_of(images.split(10), features)
    assert (told.n, told.features) == (25, "brightness")
    np.testing.assert_allclose(told.mean[0], float(images.mean()), rtol=1e-6)


class _Tiny(torch.nn.Module):
    """Stands for Inception: what it is fed comes out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :2048]


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A cache with a TorchScript file whose digest the catalogue knows."""
    monkeypatch.setenv("GRADPIVOT_DATA", str(tmp_path))
    known = ENTRIES["fid-inception"]
    path = tmp_path / known.name / known.file
    path.parent.mkdir()
    torch.jit.trace(_Tiny(), torch.zeros(1, 3, 299, 299)).save(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = replace(known, digests={known.file: f"sha256:{digest}"})
    monkeypatch.setitem(ENTRIES, known.name, entry)
    write_manifest(entry, "a test")
    return path


def test_inception_is_fed_what_it_was_trained_on(weights) -> None:
    """Grey to three channels, 299 wide, bytes and fractions alike, 0 … 255 to −1 … 127/128."""
    features = inception()
    assert (features.name, features.dimension) == ("inception-2015", 2048)
    black_and_white = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 1, 28, 28)
    told = features.extract(black_and_white)
    assert told.shape == (2, 2048)
    torch.testing.assert_close(told[0], torch.full((2048,), -1.0))
    torch.testing.assert_close(told[1], torch.full((2048,), 127 / 128))
    torch.testing.assert_close(features.extract(black_and_white.float() / 255), told)


def test_changed_weights_are_never_loaded(weights, monkeypatch) -> None:
    """Not even if the file changes after its path was checked."""
    sound = weights.read_bytes()
    weights.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    with pytest.raises(GradPivotError, match="damaged"):
        inception()
    monkeypatch.setattr(cache, "cached_file", lambda name: weights)
    with pytest.raises(GradPivotError, match="damaged"):
        inception()
