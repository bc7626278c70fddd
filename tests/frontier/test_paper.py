"""The paper's numbers, read from the tables of the article."""

from __future__ import annotations

import pytest

from gradpivot.frontier.paper import ORDER, counterpart, paper_datasets, paper_name, paper_value


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
        ("digits", "class-wise", None), ("cifar10", "random 20 %", None),
    ],
)  # fmt: skip
def test_a_problem_finds_its_counterpart(problem: str, task: str, dataset: str | None) -> None:
    assert counterpart(problem, task) == dataset
    assert paper_datasets("class-wise") == ("cifar10", "svhn")
