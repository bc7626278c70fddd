"""The line from the audited model to the original: is the forgotten knowledge a short way off?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from gradpivot.auditing.attack import Attack, Measurement, NotTestedError
from gradpivot.auditing.treatments import LearningCurves, compare, correctness, forget_records, treat
from gradpivot.evaluate import fixed_subset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = ["INTERPOLATION"]

_SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
_HALFWAY = _SHARES.index(0.5)
_RETAINED = 1000


def _measure(subject: Subject) -> Measurement:
    if subject.original is None:
        raise NotTestedError("needs the original model; pass original=")
    target = subject.original.state_dict()
    records, _ = forget_records(subject)
    kept = fixed_subset(subject.split.retain_indices, _RETAINED)
    losses: list[list[float]] = []

    def score(model: nn.Module) -> NDArray[np.float64]:
        start = {name: value.clone() for name, value in model.state_dict().items()}
        _check(start, target)
        columns, path = [], []
        for share in _SHARES:
            model.load_state_dict({name: _between(start[name], target[name], share) for name in start})
            columns.append(correctness(subject, model, records))
            path.append(float(subject.outputs_at(model, subject.dataset("retain"), kept).loss.mean()))
        losses.append(path)
        return np.stack(columns, axis=1)

    curves = LearningCurves(
        treat(subject, "interpolation", score), _SHARES, "share of the original model's weights"
    )  # fmt: skip
    roles = ["audited", *(["retrained"] if subject.retrained else [])]
    barriers = {role: _barrier(path) for role, path in zip(roles, losses, strict=False)}
    details = {**curves.details(), "barrier": barriers}
    halfway = curves.treated.map(lambda values: values[:, _HALFWAY])
    return compare(subject, halfway, details=details, note=_describe(barriers))


def _check(start: dict[str, torch.Tensor], target: dict[str, torch.Tensor]) -> None:
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (start, target)]
    if shapes[0] != shapes[1]:
        raise NotTestedError("needs the same architecture for all models: their weights have other names or shapes")


def _between(start: torch.Tensor, target: torch.Tensor, share: float) -> torch.Tensor:
    """Weights on the line; counters stay as they are."""
    if not start.is_floating_point():
        return start
    return (1 - share) * start + share * target.to(start.device, start.dtype)


def _barrier(losses: list[float]) -> float:
    """Largest excess of the loss over the line between its end points."""
    straight = [(1 - share) * losses[0] + share * losses[-1] for share in _SHARES]
    return max(loss - line for loss, line in zip(losses, straight, strict=True))


def _describe(barriers: dict[str, float]) -> str:
    found = ", ".join(f"{role} {barrier:.2f}" for role, barrier in barriers.items())
    return f"retain-loss barrier on the way, in nats: {found}"


INTERPOLATION = Attack(
    name="interpolation",
    title="Halfway to the original",
    question="knowledge",
    meaning="Accuracy on the forgotten data with weights halfway between the model and the original model.",
    measure=_measure,
    level="standard",
    decides=False,
    noise=0.05,
    margin=0.10,
    threat="Has the weights of both models. An outsider lacks the original.",
)
