"""Fine-tuning on retained data only: hidden knowledge may come back by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from gradpivot.auditing.attack import Attack, Measurement, NotApplicableError
from gradpivot.auditing.treatments import LearningCurves, compare, fine_tune, forget_records, treat
from gradpivot.evaluate import RECOVERY_STEPS, recovery_batches
from gradpivot.loop import apply_policy, has_batchnorm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = ["FINETUNE", "FINETUNE_FROZEN"]

_CHECKPOINTS = (0, 5, 20, RECOVERY_STEPS)


def _measure(subject: Subject, treatment: str, prepare: Callable[[nn.Module], object]) -> Measurement:
    records, _ = forget_records(subject)
    batches = recovery_batches(subject.split, subject.seed)

    def score(model: nn.Module) -> NDArray[np.float64]:
        return fine_tune(subject, model, batches, _CHECKPOINTS, records, prepare)

    curves = LearningCurves(treat(subject, treatment, score), _CHECKPOINTS, "steps")
    return compare(subject, curves.at_end(), zero_by_theory=True, details=curves.details())


def _measure_frozen(subject: Subject) -> Measurement:
    if not has_batchnorm(subject.model):
        raise NotApplicableError("the model has no BatchNorm")
    return _measure(subject, "fine-tuning with BatchNorm frozen", partial(apply_policy, policy="frozen"))


FINETUNE = Attack(
    name="finetune",
    title="Fine-tuning on retained data",
    question="knowledge",
    meaning=(
        f"Accuracy on the forgotten data after {RECOVERY_STEPS} steps of SGD (learning rate 0.01) on retained data "
        f"only."
    ),
    measure=partial(_measure, treatment="fine-tuning", prepare=nn.Module.train),
    level="standard",
    noise=0.05,
    margin=0.10,
    threat="Has the weights and retained data, for example a customer who fine-tunes the model.",
)

FINETUNE_FROZEN = Attack(
    name="finetune_frozen",
    title="Fine-tuning, BatchNorm frozen",
    question="knowledge",
    meaning="As fine-tuning on retained data, with the running statistics of BatchNorm left as they are.",
    measure=_measure_frozen,
    level="standard",
    noise=0.05,
    margin=0.10,
    threat="Has the weights and retained data, for example a customer who fine-tunes the model.",
)
