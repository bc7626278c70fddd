"""The paper's numbers, read from the tables of the article."""

from __future__ import annotations

import pytest

from gradpivot.results.paper import (
    GENERATED,
    ORDER,
    counterpart,
    paper_datasets,
    paper_generation,
    paper_name,
    paper_value,
)


@pytest.mark.parametrize(
    ("task", "dataset", "forget", "series", "measure", "mean", "std"),
    [
        ("class-wise", "cifar10", "mean", "CUP", "hypervolume_svc", 0.9183, 0.0097),
        ("class-wise", "cifar10", "mean", "CUP", "delta_svc", 0.0434, 0.0119),
        ("class-wise", "cifar10", "mean", "GA", "ra", 0.9443, 0.0191),
        ("class-wise", "cifar10", "mean", "ℓ1-sparse", "ua", 1.0, 0.0),
        ("class-wise", "svhn", "mean", "SalUn", "mia_svc", 0.8359, 0.2925),
        ("class-wise", "cifar10", "mean", "Retrain", "seconds", 50.96 * 60, None),
        ("random 10 %", "cifar10", "10 %", "Retrain", "mia_svc", 0.1326, 0.0072),
        ("random 10 %", "cifar10", "mean", "GA", "delta_svc", 0.1253, None),
    ],
)
def test_known_values(
    task: str, dataset: str, forget: str, series: str, measure: str, mean: float, std: float | None
) -> None:
    found = paper_value(task, dataset, forget, series, measure)
    assert found.mean == pytest.approx(mean)
    assert found.std == (None if std is None else pytest.approx(std))


def test_what_the_paper_does_not_print_is_none() -> None:
    assert paper_value("class-wise", "cifar10", "mean", "CUP", "mia") is None
    assert paper_value("random 10 %", "svhn", "mean", "CUP", "ra") is None
    assert paper_value("class-wise", "digits", "mean", "CUP", "ra") is None
    assert paper_value("class-wise", "cifar10", "mean", "DCGD (avg)", "ra") is None
    assert paper_value("index 40", "cifar10", "mean", "CUP", "ra") is None


def test_every_method_has_its_ten_classes() -> None:
    for dataset in ("cifar10", "svhn"):
        for name in ORDER:
            values = [paper_value("class-wise", dataset, str(c), name, "hypervolume_svc") for c in range(10)]
            mean = paper_value("class-wise", dataset, "mean", name, "hypervolume_svc")
            assert all(values)
            assert mean is not None


@pytest.mark.parametrize(
    ("series", "name"),
    [("L1 sparse", "l1-sparse"), ("ℓ₁-sparse", "l1-sparse"), ("salun", "SalUn"), ("CUP as printed", None)],
)
def test_names_are_the_papers(series: str, name: str | None) -> None:
    assert paper_name(series) == name


@pytest.mark.parametrize(
    ("problem", "task", "dataset"),
    [
        ("cifar10", "class-wise", "cifar10"), ("CIFAR-10 ResNet-18", "class-wise", "cifar10"),
        ("cifar100", "class-wise", None), ("svhn", "class-wise", "svhn"), ("svhn", "random 10 %", None),
        ("digits", "class-wise", None), ("cifar10", "random 20 %", None), ("cifar10-ddpm", "generation", "cifar10"),
        ("mnist-ddpm", "generation", None), ("svhn", "generation", None),
    ],
)  # fmt: skip
def test_a_problem_finds_its_counterpart(problem: str, task: str, dataset: str | None) -> None:
    assert counterpart(problem, task) == dataset
    assert paper_datasets("class-wise") == ("cifar10", "svhn")


@pytest.mark.parametrize(
    ("forget", "series", "measure", "mean"),
    [
        ("0", "CUP", "delta", 0.0328), ("3", "SalUn", "hypervolume", 0.9638), ("1", "sa", "delta", 0.2042),
        ("4", "SA", "seconds", 89.67 * 60), ("", "CUP", "seconds", 6.89 * 60),
    ],
)  # fmt: skip
def test_generators_of_the_paper(forget: str, series: str, measure: str, mean: float) -> None:
    assert paper_generation(forget, series, measure).mean == pytest.approx(mean)


def test_what_the_paper_does_not_print_of_generators_is_none() -> None:
    assert paper_generation("5", "CUP", "delta") is None
    assert paper_generation("mean", "CUP", "delta") is None
    assert paper_generation("3,4", "CUP", "hypervolume") is None
    assert paper_generation("3", "WS", "delta") is None
    assert paper_generation("3", "CUP", "ua") is None
    assert all(paper_generation(str(c), "CUP", "delta") for c in range(len(GENERATED)))
