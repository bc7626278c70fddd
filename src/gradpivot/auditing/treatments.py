"""Apply one treatment to a copy of every model of an audit and compare what it brings back."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from gradpivot.auditing.attack import Measurement, NotTestedError
from gradpivot.auditing.statistics import clopper_pearson, spread, wald
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate import MAX_RELEARNED, Shots, fixed_subset, mean_over_steps, sample_shots, sgd_steps
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = [
    "LearningCurves", "Treated", "compare", "correctness", "draw_shots", "fine_tune", "forget_accuracy_after",
    "forget_records", "mean_over_draws", "paired_credit", "treat", "weighted_layers",
]  # fmt: skip

Score = Callable[[nn.Module], "NDArray[np.float64]"]
"""Treats a model in place and returns a number in [0, 1] per forgotten record (first axis), such as correctness."""


@dataclass(frozen=True)
class Treated:
    """Numbers per forgotten record after the treatment of each model: the same records for all.

    Attributes:
        audited: For the audited model.
        retrained: For each retrained model.
        original: For the original model, or None.
    """

    audited: NDArray[np.float64]
    retrained: tuple[NDArray[np.float64], ...] = ()
    original: NDArray[np.float64] | None = None

    def map(self, change: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Treated:
        """The same with every array changed."""
        original = None if self.original is None else change(self.original)
        return Treated(change(self.audited), tuple(change(one) for one in self.retrained), original)

    def roles(self) -> dict[str, NDArray[np.float64]]:
        """The arrays by role: ``audited``, and ``retrained`` (the control) and ``original`` where given."""
        found = {"audited": self.audited, "retrained": next(iter(self.retrained), None), "original": self.original}
        return {role: values for role, values in found.items() if values is not None}


@dataclass(frozen=True)
class LearningCurves:
    """Correctness per record (rows) and checkpoint (columns) of each model.

    Attributes:
        treated: The correctness.
        x: The checkpoints.
        x_label: What they count.
    """

    treated: Treated
    x: Sequence[float]
    x_label: str

    def details(self) -> dict[str, Any]:
        """Mean accuracy at each checkpoint by role, for the page."""
        means = {role: values.mean(axis=0).tolist() for role, values in self.treated.roles().items()}
        labels = {"x_label": self.x_label, "y_label": "accuracy on the forgotten data, %"}
        return {"curve": {"x": list(self.x), **labels, **means}}

    def at_end(self) -> Treated:
        """Correctness at the last checkpoint."""
        return self.treated.map(lambda values: values[:, -1])

    def area(self) -> Treated:
        """Mean correctness over the curve by the trapezoidal rule."""
        return self.treated.map(lambda values: mean_over_steps(values, self.x))


def treat(subject: Subject, treatment: str, score: Score) -> Treated:
    """Treat and score a deep copy of every model; the models and the caller's random state stay unchanged.

    Args:
        subject: The models.
        treatment: What is done, for the reason if it fails: ``4-bit quantisation``.
        score: Treats a copy in place and scores it, with the same random numbers for every model.

    Raises:
        NotTestedError: If a model's loss or outputs are not finite after the treatment.
    """

    def scored(role: str, model: nn.Module) -> NDArray[np.float64]:
        try:
            with isolated(derive(subject.seed, "treatment", treatment)):
                return np.asarray(score(copy.deepcopy(model)), dtype=np.float64)
        except NonFiniteError as error:
            raise NotTestedError(f"after {treatment} the {role} model is not finite ({error})") from None

    return Treated(
        audited=scored("audited", subject.model),
        retrained=tuple(scored("retrained", model) for model in subject.retrained),
        original=None if subject.original is None else scored("original", subject.original),
    )


def compare(subject: Subject, treated: Treated, *, zero_by_theory: bool = False, **fields: Any) -> Measurement:
    """Mean over the records for each model, with the paired difference from the retrained model.

    Args:
        subject: The models.
        treated: One number per record and model.
        zero_by_theory: Whether a model that never saw the forgotten classes scores 0 on them. That is then the control
            if whole classes were forgotten and no retrained model is given.
        **fields: Further fields of the measurement.
    """
    control = next(iter(treated.retrained), None)
    if control is None and zero_by_theory and subject.is_class:
        control = np.zeros_like(treated.audited)
    difference, error = (None, None) if control is None else paired_credit(treated.audited, control)
    n = len(treated.audited)
    return Measurement(
        value=float(treated.audited.mean()),
        n=n,
        interval=_interval(treated.audited),
        control=None if control is None else float(control.mean()),
        control_is="retrained" if treated.retrained or control is None else "theory",
        original=None if treated.original is None else float(treated.original.mean()),
        difference=difference,
        error=error,
        noise=spread([float(one.mean()) for one in treated.retrained]) if treated.retrained else None,
        **fields,
    )


def _interval(credits: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of the mean: exact for credits of 0 and 1, by their standard error otherwise."""
    if np.isin(credits, (0.0, 1.0)).all():
        return clopper_pearson(int(credits.sum()), len(credits))
    # One record more that is half right and half wrong: equal credits do not make the mean exact.
    variance = (float(((credits - credits.mean()) ** 2).sum()) + 0.25) / len(credits)
    return wald(float(credits.mean()), math.sqrt(variance / len(credits)))


def paired_credit(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    """Mean difference of two credits in [0, 1] on the same records, and its standard error.

    As :func:`gradpivot.auditing.statistics.paired_difference`, to which it reduces for credits of 0 and 1: the standard
    error counts one record more that only the first gets right, and one that only the second does.
    """
    differences = first - second
    n = len(differences) + 2
    variance = (float((differences**2).sum()) + 2) / n - (float(differences.sum()) / n) ** 2
    return float(differences.mean()), math.sqrt(variance / n)


def forget_accuracy_after(subject: Subject, treatment: str, change: Callable[[nn.Module], None]) -> Measurement:
    """Accuracy on D_f after a change of the weights; a model that never saw the classes has none."""

    def score(model: nn.Module) -> NDArray[np.float64]:
        change(model)
        return correctness(subject, model, subject.indices("forget"))

    return compare(subject, treat(subject, treatment, score), zero_by_theory=True)


def weighted_layers(model: nn.Module) -> Sequence[nn.Module]:
    """Linear and convolutional layers with a weight of their own.

    Raises:
        NotTestedError: If there are none.
    """
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    found = [layer for layer in model.modules() if isinstance(layer, kinds) and "weight" in layer._parameters]
    if not found:
        raise NotTestedError("the model has no linear or convolutional layer (nn.Linear, nn.Conv2d, …)")
    return found


def correctness(subject: Subject, model: nn.Module, records: np.ndarray) -> NDArray[np.float64]:
    """Whether the model is right (1) or wrong (0) on training records."""
    return subject.outputs_at(model, subject.dataset("forget"), records).correct.astype(np.float64)


def draw_shots(subject: Subject, labels: np.ndarray, count: int, draws: int) -> list[Shots]:
    """Draw ``count`` records per forgotten class, or ``count`` records if no classes were forgotten.

    Raises:
        NotTestedError: If a class has no more than ``count`` records.
    """
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)] if subject.is_class else [
        np.arange(len(labels))
    ]  # fmt: skip
    if (smallest := min(map(len, groups))) <= count:
        of_what = "records of a forgotten class" if subject.is_class else "forgotten records"
        raise NotTestedError(f"needs more than {count} {of_what}; there are {smallest}")
    return [sample_shots(groups, count, subject.seed, draw) for draw in range(draws)]


def forget_records(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """At most :data:`gradpivot.evaluate.MAX_RELEARNED` records of D_f (training indices) and their labels."""
    everything = subject.indices("forget")
    records = fixed_subset(everything, MAX_RELEARNED)
    labels = subject.outputs(subject.model, "forget").labels
    return records, labels[np.searchsorted(everything, records)]


def mean_over_draws(credits: Sequence[NDArray[np.float64]], draws: Sequence[Shots]) -> NDArray[np.float64]:
    """Mean credit per record over the draws that scored it, for records scored at least once.

    Args:
        credits: For each draw the credits of its ``rest``, with records along the first axis.
        draws: The draws.
    """
    size = len(draws[0].given) + len(draws[0].rest)
    total = np.zeros((size, *credits[0].shape[1:]))
    count = np.zeros(size)
    for credit, shots in zip(credits, draws, strict=True):
        total[shots.rest] += credit
        count[shots.rest] += 1
    scored = count > 0
    divided: NDArray[np.float64] = total[scored] / count[scored].reshape(-1, *[1] * (total.ndim - 1))
    return divided


def fine_tune(
    subject: Subject,
    model: nn.Module,
    batches: Sequence[np.ndarray],
    checkpoints: Sequence[int],
    records: np.ndarray,
    prepare: Callable[[nn.Module], object],
) -> NDArray[np.float64]:
    """SGD as :func:`gradpivot.evaluate.sgd_steps` in place, one step per batch of training indices.

    Args:
        subject: Data and task.
        model: Trained in place, all of its weights.
        batches: Training indices of each step.
        checkpoints: Numbers of steps after which the model is scored, ascending; 0 is before the first.
        records: Training indices that are scored.
        prepare: Sets the modes of the modules for training.

    Returns:
        Correctness, records × checkpoints.

    Raises:
        NonFiniteError: If the loss is not finite.
    """
    columns = [correctness(subject, model, records)] if 0 in checkpoints else []
    prepare(model)
    loaded = subject.batches(model, subject.dataset("retain"), batches)
    steps = sgd_steps(model, subject.task, loaded)
    columns += [correctness(subject, model, records) for step in steps if step in checkpoints]
    return np.stack(columns, axis=1)
