"""RMIA, the robust membership attack with a few reference models (Zarifzadeh, Liu and Shokri 2024).

A record is suspicious if the audited model likes it more than models that never saw it do:

    r(x) = p(x | audited) / p(x),      p(x) = ½ ((1 + a) p̄(x) + (1 − a)),

with the probability p(x | ·) of the true label and its mean p̄ over the reference models, here retrained ones. The
offset a estimates what models trained on x would give from what those without x give (the paper's offline form):
a = 0.3 as in the paper, and a = 1, so that p = p̄, for forgotten classes, whose p̄ is near 0 and would be lost beside
the offset. A record's score is the share of unseen samples z with r(x) / r(z) ≥ γ = 1. The AUC is that of r, which
orders records as the score does but has no ties beyond the most extreme z; for the same reason γ does not matter.

References are ``retrained[1:]``, and the control is the AUC of ``retrained[0]`` with the same references. With one
retrained model it is the reference, and the control is 0.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradpivot.auditing.attack import Attack, Measurement, NotApplicableError
from gradpivot.auditing.attacks.membership import NOISE, assumption, few_samples
from gradpivot.auditing.statistics import contrast, delong, wald
from gradpivot.auditing.subject import Part, Subject
from gradpivot.evaluate import rmia_log_ratios

__all__ = ["RMIA_ATTACK", "population_scores"]

_Vector = NDArray[np.float64]


def population_scores(ratios: _Vector, population: _Vector, gamma: float = 1.0) -> _Vector:
    """Share of the population z with r(x) / r(z) ≥ γ, from the logarithms of r(x) and r(z)."""
    below = np.searchsorted(np.sort(population), ratios - np.log(gamma), side="right")
    scores: _Vector = below / len(population)
    return scores


def _log_ratios(subject: Subject, part: Part) -> _Vector:
    """Logarithm of r for the audited model, then the control and the original where there are any."""
    first, *further = subject.retrained
    references = further or [first]
    attacked = [subject.model, *([first] if further else []), *([] if subject.original is None else [subject.original])]
    own, known = (
        -np.stack([subject.outputs(model, part).loss for model in models]) for models in (attacked, references)
    )
    return rmia_log_ratios(own, known, 1.0) if subject.is_class else rmia_log_ratios(own, known)


def _check(subject: Subject) -> None:
    if not subject.retrained:
        raise NotApplicableError("RMIA needs a retrained model as reference; pass retrain=, or use level standard")
    # A single reference leaves no control, and chosen records may be harder than unseen ones.
    if len(subject.retrained) == 1 and subject.split.kind not in ("class", "random"):
        raise NotApplicableError("RMIA on chosen records needs two retrained models: a reference and a control")


def _measure(subject: Subject) -> Measurement:
    _check(subject)
    members, others = _log_ratios(subject, "forget"), _log_ratios(subject, "unseen")
    aucs, covariance = delong(members, others)
    value, own = float(aucs[0]), float(np.sqrt(covariance[0, 0]))
    paired = len(subject.retrained) > 1
    difference, error = contrast(aucs, covariance, 0, 1) if paired else (value - 0.5, own)
    note = f"{max(1, len(subject.retrained) - 1)} reference model(s)."
    return Measurement(
        value=value,
        n=members.shape[1] + others.shape[1],
        interval=wald(value, own),
        control=float(aucs[1]) if paired else 0.5,
        control_is="retrained" if paired else "theory",
        original=float(aucs[-1]) if subject.original is not None else None,
        difference=difference,
        error=None if few_samples(subject) else error,
        note=note if paired else f"{note} {_single(subject)}",
        details={"records": _records(subject, members[0], others[0])},
    )


def _single(subject: Subject) -> str:
    return assumption(subject).replace("No retrained model:", "The only retrained model is the reference:")


def _records(subject: Subject, ratios: _Vector, population: _Vector) -> dict[str, list[float]]:
    """Training indices and scores of the forgotten records, most member-like first."""
    scores = population_scores(ratios, population)
    order = np.argsort(-ratios, kind="stable")
    return {"index": subject.indices("forget")[order].tolist(), "score": scores[order].tolist()}


RMIA_ATTACK = Attack(
    name="rmia",
    title="RMIA with reference models",
    question="membership",
    meaning="AUC of telling forgotten records from unseen ones by how much likelier the model finds them than models "
    "that never saw them.",
    measure=_measure,
    unit="",
    noise=NOISE,
    threat="Anyone who can query the model's probabilities, holds the record and can train similar models without it.",
)
