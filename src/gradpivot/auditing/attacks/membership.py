"""Membership attacks that need no extra models: forget set against comparable unseen data, by one score per sample.

The AUC is reported as it is: above 0.5 the forgotten records still look like members, below it they stand out as
over-forgotten. Loss, confidence and scaled margin order the samples alike, so one of them decides: the margin, which
has no ties where the confidence rounds to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradpivot.auditing.attack import Attack, Measurement, NotTestedError
from gradpivot.auditing.statistics import contrast, delong, paired_difference, roc, spread, tpr_at, wald
from gradpivot.auditing.subject import Outputs, Part, Subject

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "CONFIDENCE_ATTACK", "ENTROPY_ATTACK", "EXPOSURE", "LOSS_ATTACK", "MARGIN_ATTACK", "MARGIN_TPR_01", "MARGIN_TPR_1",
    "NOISE", "assumption", "few_samples",
]  # fmt: skip

_MIN_SAMPLES = 10
"""Samples on each side below which the normal approximation of an AUC's error fails."""

_Vector = NDArray[np.float64]

_SCORES: Mapping[str, Callable[[Outputs], _Vector]] = {
    "loss": lambda outputs: -outputs.loss,
    "confidence": lambda outputs: np.exp(-outputs.loss),
    "entropy": lambda outputs: -outputs.entropy,
    "margin": lambda outputs: outputs.margin,
}
"""How member-like a sample looks."""

_BY_QUERIES = "Anyone who can query the model's probabilities and holds the record and similar data."
_SAME_ORDER = "Orders the samples like the margin, up to rounding: shown, not counted twice."
_CHANCE = "No retrained model: compared with 0.5, the value for a model trained on neither forget nor unseen data."


def assumption(subject: Subject) -> str:
    """Remark on comparing with chance: it assumes that forget and unseen data have the same distribution."""
    if subject.split.kind in ("class", "random"):
        return _CHANCE
    return f"{_CHANCE} This assumes that the chosen records are as typical as the unseen data; pass a retrained model."


def _scored(subject: Subject, model: nn.Module, part: Part, name: str) -> _Vector:
    return _SCORES[name](subject.outputs(model, part))


def _auc(subject: Subject, name: str, note: str = "") -> Measurement:
    """AUC of the forget set against unseen data: audited model, retrained ones and the original."""
    retrained = subject.retrained
    models = (subject.model, *retrained, *(() if subject.original is None else (subject.original,)))
    members = np.stack([_scored(subject, model, "forget", name) for model in models])
    others = np.stack([_scored(subject, model, "unseen", name) for model in models])
    aucs, covariance = delong(members, others)
    value, own = float(aucs[0]), float(np.sqrt(covariance[0, 0]))
    difference, error = contrast(aucs, covariance, 0, 1) if retrained else (value - 0.5, own)
    remarks = (note, "" if retrained else assumption(subject), few_samples(subject))
    return Measurement(
        value=value,
        n=members.shape[1] + others.shape[1],
        interval=wald(value, own),
        control=float(aucs[1]) if retrained else 0.5,
        control_is="retrained" if retrained else "theory",
        original=None if subject.original is None else float(aucs[-1]),
        difference=difference,
        error=error if is_decidable(subject) else None,
        noise=spread(aucs[1 : 1 + len(retrained)]) if retrained else None,
        note=" ".join(filter(None, remarks)),
        details={"roc": _curves(subject)} if name == "margin" else {},
    )


def is_decidable(subject: Subject) -> bool:
    """Whether an AUC can decide: enough samples on both sides, and typical records or a retrained model as control."""
    return not few_samples(subject) and (bool(subject.retrained) or subject.split.kind in ("class", "random"))


def few_samples(subject: Subject) -> str:
    """A remark if there are too few samples for the error of an AUC."""
    least = min(len(subject.indices("forget")), len(subject.indices("unseen")))
    return "" if least >= _MIN_SAMPLES else f"Fewer than {_MIN_SAMPLES} samples on one side: not decided."


def _curves(subject: Subject) -> dict[str, Any]:
    """ROC curve of the margin for every model."""
    return {
        role: roc(_scored(subject, model, "forget", "margin"), _scored(subject, model, "unseen", "margin"))._asdict()
        for role, model in subject.models.items()
    }


def _tpr(subject: Subject, fpr: float) -> Measurement:
    """Share of the forget set recognised by the margin at a false-positive rate."""
    found = {
        role: tpr_at(_scored(subject, model, "forget", "margin"), _scored(subject, model, "unseen", "margin"), fpr)
        for role, model in subject.models.items()
    }
    audited, retrained, original = found["audited"], found.get("retrained"), found.get("original")
    difference, error = (
        paired_difference(audited.detected, retrained.detected) if retrained else (audited.tpr - audited.expected, None)
    )
    m = len(subject.indices("unseen"))
    few = f"{m} unseen samples are too few for this rate: measured at no false positive." if not audited.allowed else ""
    chance = "" if retrained else "No retrained model: compared with the rate expected by chance."
    return Measurement(
        value=audited.tpr,
        n=audited.detected.size + m,
        interval=audited.interval,
        control=retrained.tpr if retrained else audited.expected,
        control_is="retrained" if retrained else "theory",
        original=original.tpr if original else None,
        difference=difference,
        error=error,
        note=" ".join(filter(None, (few, chance))),
        details={"false_positives_allowed": audited.allowed, "unseen": m},
    )


def _exposed(subject: Subject) -> Measurement:
    """AUC of retained records against test data by margin: audited model against the original."""
    if subject.original is None:
        raise NotTestedError("whether retained records are more exposed than before needs the original model")
    models = (subject.model, subject.original, *subject.retrained[:1])
    members = np.stack([_scored(subject, model, "retain", "margin") for model in models])
    others = np.stack([_scored(subject, model, "test", "margin") for model in models])
    aucs, covariance = delong(members, others)
    difference, error = contrast(aucs, covariance, 0, 1)
    beside = f" The retrained model has {aucs[2]:.3f}." if subject.retrained else ""
    return Measurement(
        value=float(aucs[0]),
        n=members.shape[1] + others.shape[1],
        interval=wald(float(aucs[0]), float(np.sqrt(covariance[0, 0]))),
        control=float(aucs[1]),
        control_is="original",
        original=float(aucs[1]),
        difference=difference,
        error=error,
        note=f"The control is the original model: what was exposed before.{beside}",
    )


NOISE = 0.03
"""AUC by which retrained models differ beyond sampling error: which records they find hard is partly chance."""

_attack = partial(Attack, question="membership", threat=_BY_QUERIES)
_for_information = partial(_attack, decides=False)

MARGIN_ATTACK = _attack(
    name="margin_auc", title="Margin attack", measure=partial(_auc, name="margin"), unit="", noise=NOISE,
    meaning="AUC of telling forgotten records from unseen ones by the scaled margin log p/(1 − p) of the true label.",
)  # fmt: skip
ENTROPY_ATTACK = _attack(
    name="entropy_auc", title="Entropy attack", measure=partial(_auc, name="entropy"), unit="", noise=NOISE,
    meaning="AUC of telling forgotten records from unseen ones by how certain the prediction is; needs no label.",
)  # fmt: skip
LOSS_ATTACK = _for_information(
    name="loss_auc", title="Loss attack", measure=partial(_auc, name="loss", note=_SAME_ORDER), unit="",
    meaning="AUC of telling forgotten records from unseen ones by the cross-entropy loss.",
)  # fmt: skip
CONFIDENCE_ATTACK = _for_information(
    name="confidence_auc", title="Confidence attack", measure=partial(_auc, name="confidence", note=_SAME_ORDER),
    unit="", meaning="AUC of telling forgotten records from unseen ones by the probability of the true label.",
)  # fmt: skip
MARGIN_TPR_1 = _for_information(
    name="margin_tpr_1", title="Margin attack, TPR at 1 % FPR", measure=partial(_tpr, fpr=0.01), direction="higher",
    meaning="Share of the forgotten records with a margin above all but 1 % of the unseen records' margins.",
)  # fmt: skip
MARGIN_TPR_01 = _for_information(
    name="margin_tpr_01", title="Margin attack, TPR at 0.1 % FPR", measure=partial(_tpr, fpr=0.001), direction="higher",
    meaning="Share of the forgotten records with a margin above all but 0.1 % of the unseen records' margins.",
)  # fmt: skip
EXPOSURE = _for_information(
    name="exposed_auc", title="Exposure of retained records", measure=_exposed, unit="", direction="higher",
    meaning="AUC of telling retained records from test data by the scaled margin; higher than for the original model "
    "means that forgetting exposes others.",
)  # fmt: skip
