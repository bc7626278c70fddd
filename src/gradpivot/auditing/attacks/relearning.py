"""Relearning from a few forgotten records: knowledge that is hidden returns faster than it is learned anew."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from gradpivot.auditing.attack import Attack, Measurement
from gradpivot.auditing.treatments import (
    LearningCurves,
    compare,
    draw_shots,
    fine_tune,
    forget_records,
    mean_over_draws,
    treat,
)
from gradpivot.evaluate import RELEARN_STEPS, relearn_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = ["RELEARN_1", "RELEARN_5", "RELEARN_20"]

_REPEATS = 3


def _measure(subject: Subject, count: int) -> Measurement:
    records, labels = forget_records(subject)
    draws = draw_shots(subject, labels, count, _REPEATS)
    batches = [
        relearn_batches(records[shots.given], subject.split.retain_indices, count, subject.seed, number)
        for number, shots in enumerate(draws)
    ]

    def score(model: nn.Module) -> NDArray[np.float64]:
        start = {name: value.clone() for name, value in model.state_dict().items()}
        credits = []
        for shots, order in zip(draws, batches, strict=True):
            model.load_state_dict(start)
            # The batches are too small for the statistics of BatchNorm.
            credits.append(fine_tune(subject, model, order, RELEARN_STEPS, records[shots.rest], nn.Module.eval))
        return mean_over_draws(credits, draws)

    curves = LearningCurves(treat(subject, f"relearning from {count}", score), RELEARN_STEPS, "steps")
    details = {**curves.details(), "half_steps": _half_steps(curves)}
    return compare(subject, curves.area(), details=details)


def _half_steps(curves: LearningCurves) -> dict[str, float | None]:
    """First step at which a model has regained half of what it lacks to the original model; None if it has not."""
    means: dict[str, list[float]] = {role: v.mean(axis=0).tolist() for role, v in curves.treated.roles().items()}
    if "original" not in means:
        return {}
    goal = means["original"][0]
    return {
        role: next((x for x, a in zip(curves.x, mean, strict=True) if a >= (mean[0] + goal) / 2), None)
        for role, mean in means.items()
        if role != "original"
    }


def _attack(count: int) -> Attack:
    records = "one forgotten record" if count == 1 else f"{count} forgotten records"
    return Attack(
        name=f"relearn_{count}",
        title=f"Relearning from {count}",
        question="knowledge",
        meaning=(
            f"Accuracy on the other forgotten records, averaged over {RELEARN_STEPS[-1]} steps of SGD (learning "
            f"rate 0.01) on {records} per class and as many retained samples."
        ),
        measure=partial(_measure, count=count),
        level="standard",
        # How fast a class is relearned differs by up to 40 points between retrained networks, so it only informs.
        decides=False,
        threat="Has the weights, retained data and a few labelled records of what was forgotten.",
    )


RELEARN_1, RELEARN_5, RELEARN_20 = _attack(1), _attack(5), _attack(20)
