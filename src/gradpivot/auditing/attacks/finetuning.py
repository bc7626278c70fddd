"""Fine-tuning on retained data only: hidden knowledge may come back by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from gradpivot.auditing.attack import Attack, Measurement, NotApplicableError
from gradpivot.auditing.treatments import LearningCurves, compare, fine_tune, forget_records, treat
from gradpivot.evaluate import repeated_batches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gradpivot.auditing.subject import Subject

__all__ = ["FINETUNE", "FINETUNE_FROZEN"]

_CHECKPOINTS = (0, 5, 20, 100)
_SIZE = 64
_NORMALISATION = nn.modules.batchnorm._BatchNorm


def _measure(subject: Subject, treatment: str, prepare: Callable[[nn.Module], object]) -> Measurement:
    records, _ = forget_records(subject)
    batches = repeated_batches(subject.split.retain_indices, _SIZE, _CHECKPOINTS[-1], subject.seed, "finetune")

    def score(model: nn.Module) -> NDArray[np.float64]:
        return fine_tune(subject, model, batches, _CHECKPOINTS, records, prepare)

    curves = LearningCurves(treat(subject, treatment, score), _CHECKPOINTS, "steps")
    return compare(subject, curves.at_end(), zero_by_theory=True, details=curves.details())


def _measure_frozen(subject: Subject) -> Measurement:
    if not any(isinstance(module, _NORMALISATION) for module in subject.model.modules()):
        raise NotApplicableError("the model has no BatchNorm")
    return _measure(subject, "fine-tuning with BatchNorm frozen", _train_without_statistics)


def _train_without_statistics(model: nn.Module) -> None:
    model.train()
    for module in model.modules():
        if isinstance(module, _NORMALISATION):
            module.eval()


FINETUNE = Attack(
    name="finetune",
    title="Fine-tuning on retained data",
    question="knowledge",
    meaning=(
        f"Accuracy on the forgotten data after {_CHECKPOINTS[-1]} steps of SGD (learning rate 0.01) on retained data "
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
