"""The last layer: do its inputs or raw outputs still tell the forgotten classes apart?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gradpivot.auditing.attack import Attack, Measurement, NotTestedError
from gradpivot.auditing.treatments import compare, draw_shots, forget_records, mean_over_draws, treat
from gradpivot.data import cut
from gradpivot.errors import NonFiniteError
from gradpivot.evaluate import Shots, fixed_subset
from gradpivot.runtime import evaluating

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = ["FEW", "HEAD_REFIT", "LINEAR_PROBE", "LOGIT_REFIT", "RAW_OUTPUTS", "HeadPass", "head_pass"]

FEW = 5
"""Labelled forgotten records per class that the attacker has for a refit."""
_REFITS = 4
_HALVINGS = 2
_MAX_RETAINED = 1000
_BATCH = 256


class HeadPass(NamedTuple):
    """The head's inputs and outputs on n records, before anything that the model does to them afterwards.

    Attributes:
        inputs: The features, n×d.
        products: The head's outputs without its bias, n×k.
        outputs: The head's outputs, n×k.
        labels: True labels, n.
    """

    inputs: NDArray[np.float64]
    products: NDArray[np.float64]
    outputs: NDArray[np.float64]
    labels: NDArray[np.int64]


@torch.no_grad()
def head_pass(subject: Subject, model: nn.Module, records: np.ndarray) -> HeadPass:
    """Run training records through a model and watch its head: the last ``nn.Linear`` with as many outputs as logits.

    Raises:
        NotTestedError: If there is no such layer, or its input is not one vector per record.
        NonFiniteError: If its input is not finite.
    """
    last: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def keep(layer: nn.Linear, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        last[layer.out_features] = (inputs[0] if inputs else named["input"], layer.weight, output)

    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(keep, with_kwargs=True) for layer in linear]
    found = []
    try:
        with evaluating(model):
            for batch in subject.batches(model, subject.dataset("forget"), cut(records, _BATCH)):
                last.clear()
                logits, targets = subject.task.logits(model, batch)
                found.append((*_watched(last, logits), targets))
    finally:
        for hook in hooks:
            hook.remove()
    seen = HeadPass(*(torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True)))
    if not np.isfinite(seen.products).all():
        raise NonFiniteError("the inputs of its last layer are not finite")
    return seen


def _watched(last: Mapping[int, tuple[Tensor, Tensor, Tensor]], logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if logits.shape[1] not in last:
        raise NotTestedError(f"the model has no nn.Linear with {logits.shape[1]} outputs, the number of logits")
    inputs, weight, output = last[logits.shape[1]]
    if inputs.ndim != 2 or len(inputs) != len(logits):
        raise NotTestedError(f"the last layer's input has shape {tuple(inputs.shape)}, not one vector per record")
    return inputs.double(), inputs.double() @ weight.double().T, output.double()


def _raw_outputs(subject: Subject) -> Measurement:
    records, _ = forget_records(subject)

    def score(model: nn.Module) -> NDArray[np.float64]:
        seen = head_pass(subject, model, records)
        return np.asarray(seen.outputs.argmax(axis=1) == seen.labels, dtype=np.float64)

    return compare(subject, treat(subject, "unwrapping the last layer", score), zero_by_theory=True)


def _refit(
    subject: Subject,
    treatment: str,
    draw: Callable[[Subject, np.ndarray], list[Shots]],
    features: Literal["inputs", "products"] = "inputs",
) -> Measurement:
    records, labels = forget_records(subject)
    draws = draw(subject, labels)
    kept = fixed_subset(subject.split.retain_indices, _MAX_RETAINED)

    def score(model: nn.Module) -> NDArray[np.float64]:
        passes = [head_pass(subject, model, part) for part in (kept, records)]
        retained, forgotten = (_Labelled(getattr(seen, features), seen.labels) for seen in passes)
        return mean_over_draws([_refit_correct(retained, forgotten, shots) for shots in draws], draws)

    return compare(subject, treat(subject, treatment, score))


class _Labelled(NamedTuple):
    features: NDArray[np.float64]
    labels: NDArray[np.int64]


def _refit_correct(retained: _Labelled, forgotten: _Labelled, shots: Shots) -> NDArray[np.float64]:
    """Fit a head on retained samples and the given forgotten records; correctness on the rest."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    # One scale for all: features that retained data never activate would dominate if each had its own.
    centre, scale = retained.features.mean(axis=0), float(np.sqrt(retained.features.var(axis=0).mean())) or 1.0
    inputs = np.concatenate([retained.features, forgotten.features[shots.given]])
    labels = np.concatenate([retained.labels, forgotten.labels[shots.given]])
    if len(np.unique(labels)) < 2:
        raise NotTestedError("needs two classes to fit a head")
    # These problems are small: threads would wait for each other, four times as long as one thread takes.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an approximate fit is enough for a comparison
        head = LogisticRegression(class_weight="balanced", max_iter=200).fit((inputs - centre) / scale, labels)
    predicted = head.predict((forgotten.features[shots.rest] - centre) / scale)
    correct: NDArray[np.float64] = (predicted == forgotten.labels[shots.rest]).astype(np.float64)
    return correct


def _few(subject: Subject, labels: np.ndarray) -> list[Shots]:
    return draw_shots(subject, labels, FEW, _REFITS)


def _halves(subject: Subject, labels: np.ndarray) -> list[Shots]:
    """Halvings of D_f, each used both ways."""
    sizes = np.unique(labels, return_counts=True)[1] if subject.is_class else np.array([len(labels)])
    count = int(sizes.min()) // 2
    if count == 0:
        raise NotTestedError("needs two forgotten records per class")
    return [
        way for one in draw_shots(subject, labels, count, _HALVINGS) for way in (one, Shots(one.rest, one.given))
    ]  # fmt: skip


RAW_OUTPUTS = Attack(
    name="raw_outputs",
    title="Raw outputs of the last layer",
    question="knowledge",
    meaning="Accuracy on the forgotten data by the last linear layer's outputs, before any mask or post-processing.",
    measure=_raw_outputs,
    noise=0.05,
    margin=0.10,
    threat="Anyone who has the weights; no data needed.",
)

LOGIT_REFIT = Attack(
    name="logit_refit",
    title="Logit refit",
    question="knowledge",
    meaning=(
        f"Accuracy on the other forgotten records after fitting a classifier to the last layer's outputs, on retained "
        f"samples and {FEW} forgotten records per class."
    ),
    measure=partial(_refit, treatment="refitting the logits", draw=_few, features="products"),
    noise=0.10,
    margin=0.20,
    threat="Has the weights, retained data and a few labelled records of what was forgotten.",
)

HEAD_REFIT = Attack(
    name="head_refit",
    title="Head refit",
    question="knowledge",
    meaning=(
        f"Accuracy on the other forgotten records after fitting a new last layer to retained samples and {FEW} "
        f"forgotten records per class."
    ),
    measure=partial(_refit, treatment="refitting the head", draw=_few),
    noise=0.10,
    margin=0.20,
    threat="Has the weights, retained data and a few labelled records of what was forgotten.",
)

LINEAR_PROBE = Attack(
    name="linear_probe",
    title="Linear probe",
    question="knowledge",
    meaning=(
        "Accuracy on one half of the forgotten records after fitting a new last layer to retained samples and the "
        "other half."
    ),
    measure=partial(_refit, treatment="linear probing", draw=_halves),
    noise=0.10,
    margin=0.20,
    threat="Has the weights, retained data and many labelled records of what was forgotten.",
)
