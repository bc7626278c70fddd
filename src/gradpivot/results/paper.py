"""The paper's own numbers, to stand beside ours: ``paper_results.csv``, typed from its tables.

Lines of task, dataset, forget (a class, ``mean`` over the classes, empty for random subsets), method, metric,
value and standard deviation, in percent (RTE in minutes) as printed. The paper's MIA is the SVC's, and so are the
Δ and H made from it: they stand beside our ``mia_svc``, ``delta_svc`` and ``hypervolume_svc``. In the means over
classes the deviation is that of the classes.

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
"""The methods in the order of the paper's tables, and with its names."""

GENERATED = ("Airplane", "Automobile", "Bird", "Cat", "Deer")
"""The classes of CIFAR-10 that the paper takes out of a generator: classes 0 to 4."""

_METRICS = {
    "RA": "ra", "UA": "ua", "TA": "ta", "MIA": "mia_svc", "Delta": "delta_svc", "H": "hypervolume_svc",
    "RTE_minutes": "seconds",
}  # fmt: skip
_TASKS = {"class-wise": "class-wise", "random 10 %": "random-10%", "generation": "generation"}
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class PaperValue:
    """One printed number: a fraction (seconds for RTE), and its standard deviation where one is printed."""

    mean: float
    std: float | None

    def to_dict(self) -> dict[str, float | None]:
        """A JSON-able dictionary."""
        return asdict(self)


def paper_name(series: str) -> str | None:
    """The paper's name of a series: ``l1-sparse`` for ``ℓ1-sparse`` or ``L1 sparse``; None if it has none."""
    return _known_names().get(_folded(series))


def paper_value(task: str, dataset: str, forget: str, series: str, measure: str) -> PaperValue | None:
    """What the paper prints for a series, or None.

    Args:
        task: ``class-wise`` or ``random 10 %``.
        dataset: ``cifar10`` or ``svhn``.
        forget: A class such as ``3``, or ``mean`` over the classes; for random subsets it does not matter.
        series: Our name; see :func:`paper_name`.
        measure: ``ra``, ``ua``, ``ta``, ``mia_svc``, ``delta_svc``, ``hypervolume_svc`` or ``seconds``.
    """
    name = paper_name(series)
    if name is None or task not in _TASKS:
        return None
    return _values().get((_TASKS[task], dataset, forget if task == "class-wise" else "", name, measure))


def paper_reference(task: str, dataset: str, forget: str) -> Scores | None:
    """The paper's retrained model on a class, as scores; its MIA, the SVC's, stands for both of ours.

    None for random subsets: there the retrained model is a matter of one's own network, and not 100 % forgetting.
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
    """What the paper prints for a class-conditional DDPM on CIFAR-10, or None.

    Args:
        forget: A class from ``0`` to ``4``; for the run time it does not matter, the paper has one a method.
        series: ``CUP``, ``SalUn`` or ``SA``.
        measure: ``delta``, ``hypervolume`` or ``seconds``; its M is not given, and FID and UA are not printed.
    """
    column = {"delta": "delta_svc", "hypervolume": "hypervolume_svc", "seconds": "seconds"}.get(measure)
    name = {_folded(known): known for known in ("CUP", "SalUn", "SA")}.get(_folded(series))
    if column == "seconds":
        forget = "mean"
    elif forget in map(str, range(len(GENERATED))):
        forget = GENERATED[int(forget)]
    return _values().get(("generation", "cifar10", forget, name, column)) if name and column else None


def counterpart(problem: str, task: str) -> str | None:
    """The paper's dataset that a problem is on: ``cifar10`` for ``cifar10`` or ``CIFAR-10 ResNet-18``."""
    found = re.match(r"(cifar-?10|svhn)(?![0-9])", problem.strip().lower())
    dataset = found.group(1).replace("-", "") if found else None
    return dataset if dataset in paper_datasets(task) else None


def paper_datasets(task: str) -> tuple[str, ...]:
    """The datasets on which the paper has that task."""
    return tuple(sorted({key[1] for key in _values() if key[0] == _TASKS.get(task)}))


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower().replace("ℓ", "l").replace("₁", "1"))


@functools.cache
def _known_names() -> dict[str, str]:
    return {_folded(name): name for name in ORDER}


@functools.cache
def _values() -> dict[Key, PaperValue]:
    text = resources.files("gradpivot.results").joinpath("paper_results.csv").read_text(encoding="utf-8")
    found: dict[Key, PaperValue] = {}
    for row in csv.DictReader(text.splitlines()):
        scale = 60.0 if row["metric"] == "RTE_minutes" else 0.01
        key = (row["task"], row["dataset"], row["forget"], row["method"], _METRICS[row["metric"]])
        if key in found:
            raise GradPivotError(f"paper_results.csv has {key} twice; install gradpivot again")
        std = scale * float(row["std"]) if row["std"] else None
        found[key] = PaperValue(scale * float(row["value"]), std)
    return found
