"""Accuracy on the forget set as it is, without any treatment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradpivot.auditing.attack import Attack, Measurement
from gradpivot.auditing.treatments import Treated, compare

if TYPE_CHECKING:
    from gradpivot.auditing.subject import Subject

__all__ = ["FORGET_ACCURACY"]


def _forget_accuracy(subject: Subject) -> Measurement:
    audited, *retrained = (
        subject.outputs(model, "forget").correct.astype(float) for model in (subject.model, *subject.retrained)
    )
    original = None if subject.original is None else subject.outputs(subject.original, "forget").correct.astype(float)
    return compare(subject, Treated(audited, tuple(retrained), original), zero_by_theory=True)


FORGET_ACCURACY = Attack(
    name="forget_accuracy",
    title="Accuracy on the forgotten data",
    question="knowledge",
    meaning="Share of the forgotten records that the model still classifies correctly.",
    measure=_forget_accuracy,
    noise=0.05,
    margin=0.10,
    threat="Anyone who can query the model.",
)
