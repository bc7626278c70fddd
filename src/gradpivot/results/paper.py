"""The results in the paper's tables, from ``paper_results.csv``.

Columns: task, dataset, forget (a class, ``mean`` over classes, or empty for random subsets), method, metric, value and
standard deviation. Values are as printed, in percent (RTE in minutes). The paper's MIA uses an SVC, so its MIA, Δ and H
correspond to our ``mia_svc``, ``delta_svc`` and ``hypervolume_svc``. The standard deviation of a mean is over classes.

References:
    "Controllable Machine Unlearning via Gradient Pivoting" (CUP), arXiv:2510.19226: Table 1 and appendix.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import asdict, dataclass
from importlib import resources

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Scores

__all__ = [
    "GENERATED", "ORDER", "PaperValue", "counterpart", "paper_datasets", "paper_generation", "paper_name",
    "paper_reference", "paper_value",
]  # fmt: skip

ORDER = ("Retrain", "GA", "WS", "RL", "IU", "BE", "BS", "l1-sparse", "SalUn", "CUP")
"""The paper's names of the methods, in the order of its tables."""

GENERATED = ("Airplane", "Automobile", "Bird", "Cat", "Deer")
"""The CIFAR-10 classes that the paper removes from a generator: classes 0 to 4."""

_METRICS = {
    "RA": "ra", "UA": "ua", "TA": "ta", "MIA": "mia_svc", "Delta": "delta_svc", "H": "hypervolume_svc",
    "RTE_minutes": "seconds",
}  # fmt: skip
_TASKS = {"class-wise": "class-wise", "random 10 %": "random-10%", "generation": "generation"}
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class PaperValue:
    """A value from the paper as a fraction (seconds for RTE), with its standard deviation if printed."""

    mean: float
    std: float | None

    def to_dict(self) -> dict[str, float | None]:
        """A JSON-able dictionary."""
        return asdict(self)


def paper_name(series: str) -> str | None:
    """The paper's name of a series, such as ``l1-sparse`` for ``ℓ1-sparse``; None if it does not have it."""
    return _known_names().get(_normalised(series))


def paper_value(task: str, dataset: str, forget: str, series: str, measure: str) -> PaperValue | None:
    """The paper's value for a series, or None.

    Args:
        task: ``class-wise`` or ``random 10 %``.
        dataset: ``cifar10`` or ``svhn``.
        forget: A class such as ``3``, or ``mean`` over classes; ignored for random subsets.
        series: Our name of the series; see :func:`paper_name`.
        measure: ``ra``, ``ua``, ``ta``, ``mia_svc``, ``delta_svc``, ``hypervolume_svc`` or ``seconds``.
    """
    name = paper_name(series)
    if name is None or task not in _TASKS:
        return None
    return _values().get((_TASKS[task], dataset, forget if task == "class-wise" else "", name, measure))


def paper_reference(task: str, dataset: str, forget: str) -> Scores | None:
    """The scores of the paper's retrained model for a class, with its SVC's MIA for both MIAs.

    None for random subsets, where the scores of a retrained model depend on the network.
    """
    if task != "class-wise":
        return None
    values = {m: paper_value(task, dataset, forget, "Retrain", m) for m in ("ra", "ua", "ta", "mia_svc")}
    found = {name: value.mean for name, value in values.items() if value is not None}
    if len(found) < len(values):
        return None
    svc = {"mia": found["mia_svc"], "mia_svc_accuracy": 1.0, "mia_svc_determined": True}
    return Scores.from_measurements({**found, **svc, "n_forget": 0, "n_retain": 0, "n_test": 0})


def paper_generation(forget: str, series: str, measure: str) -> PaperValue | None:
    """The paper's value for a class-conditional DDPM on CIFAR-10, or None.

    Args:
        forget: A class from ``0`` to ``4``; ignored for ``seconds``, which the paper gives per method.
        series: ``CUP``, ``SalUn`` or ``SA``.
        measure: ``delta``, ``hypervolume`` or ``seconds``. The paper gives neither M nor FID and UA.
    """
    column = {"delta": "delta_svc", "hypervolume": "hypervolume_svc", "seconds": "seconds"}.get(measure)
    name = {_normalised(known): known for known in ("CUP", "SalUn", "SA")}.get(_normalised(series))
    if column == "seconds":
        forget = "mean"
    elif forget in map(str, range(len(GENERATED))):
        forget = GENERATED[int(forget)]
    return _values().get(("generation", "cifar10", forget, name, column)) if name and column else None


def counterpart(problem: str, task: str) -> str | None:
    """The paper's dataset of a problem: ``cifar10`` for ``cifar10`` or ``CIFAR-10 ResNet-18``; None if it has none."""
    found = re.match(r"(cifar-?10|svhn)(?![0-9])", problem.strip().lower())
    dataset = found.group(1).replace("-", "") if found else None
    return dataset if dataset in paper_datasets(task) else None


def paper_datasets(task: str) -> tuple[str, ...]:
    """The paper's datasets for a task."""
    return tuple(sorted({key[1] for key in _values() if key[0] == _TASKS.get(task)}))


def _normalised(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower().replace("ℓ", "l").replace("₁", "1"))


@functools.cache
def _known_names() -> dict[str, str]:
    return {_normalised(name): name for name in ORDER}


@functools.cache
def _values() -> dict[Key, PaperValue]:
    text = resources.files("gradpivot.results").joinpath("paper_results.csv").read_text(encoding="utf-8")
    found: dict[Key, PaperValue] = {}
    for row in csv.DictReader(text.splitlines()):
        scale = 60.0 if row["metric"] == "RTE_minutes" else 0.01
        key = (row["task"], row["dataset"], row["forget"], row["method"], _METRICS[row["metric"]])
        if key in found:
            raise GradPivotError(f"paper_results.csv has {key} twice; reinstall gradpivot")
        std = scale * float(row["std"]) if row["std"] else None
        found[key] = PaperValue(scale * float(row["value"]), std)
    return found
