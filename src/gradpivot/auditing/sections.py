"""Data of the audit page besides the findings: classes, records and example images. JSON-able."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradpivot.auditing.attack import NotTestedError
from gradpivot.auditing.attacks.collateral import expected_calibration_error
from gradpivot.auditing.subject import Outputs
from gradpivot.data import encode_rgb
from gradpivot.evaluate import fixed_subset
from gradpivot.runtime import derive, isolated

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from gradpivot.auditing.subject import Part, Subject
    from gradpivot.results import Finding

__all__ = ["page_sections", "picture"]

_HARMED = 10
_EXAMPLES = 8
_EXPOSED = 50
_MAX_NEIGHBOURS = 30
_MIN_SIDE, _MAX_SIDE = 4, 64
_SCORED_BY = ("ulira", "rmia")
"""Attacks with a score per record, best first."""


def page_sections(subject: Subject, findings: Iterable[Finding], *, images: bool = True) -> dict[str, Any]:
    """What the page shows besides the findings.

    Returns:
        ``classes``: test accuracy per class and model. ``neighbours``: as which classes D_f is predicted. ``harmed``:
        the retained records that lost most confidence. ``calibration``: expected calibration error per model.
        ``examples``: forgotten records with each model's prediction. ``records``: forgotten records, the most exposed
        first.
    """
    found: dict[str, Any] = {
        "classes": _classes(subject),
        "neighbours": _neighbours(subject),
        "harmed": _harmed(subject),
        "calibration": {
            role: expected_calibration_error(subject.outputs(model, "test")) for role, model in subject.models.items()
        },
        "examples": _examples(subject),
        "records": _records(subject, findings),
    }
    for shown in () if images else ("harmed", "examples", "records"):
        found[shown] = [{**row, "image": None} for row in found[shown]]
    return found


def _classes(subject: Subject) -> list[dict[str, Any]]:
    """Test accuracy per class, forgotten ones included."""
    found = {role: _whole_test(subject, model) for role, model in subject.models.items()}
    labels = found["audited"].labels
    rows = []
    for label in np.unique(labels):
        at = labels == label
        accuracies = {role: float(found[role].correct[at].mean()) if role in found else None for role in _ROLES}
        forgotten = subject.is_class and int(label) in subject.split.classes
        rows.append({"class": int(label), "n": int(at.sum()), "forgotten": forgotten, **accuracies})
    return rows


_ROLES = ("audited", "retrained", "original")


def _whole_test(subject: Subject, model: nn.Module) -> Outputs:
    parts = [subject.outputs(model, "test")]
    if subject.is_class and len(subject.indices("unseen")):
        parts.append(subject.outputs(model, "unseen"))
    return Outputs(np.concatenate([part.logits for part in parts]), np.concatenate([part.labels for part in parts]))


def _neighbours(subject: Subject) -> dict[str, Any]:
    """Share of D_f predicted as each class; the most frequent classes if there are many."""
    found = {role: subject.outputs(model, "forget") for role, model in subject.models.items()}
    classes = found["audited"].logits.shape[1]
    shares = {role: np.bincount(one.predicted, minlength=classes) / len(one.labels) for role, one in found.items()}
    most = np.max(np.stack(list(shares.values())), axis=0)
    kept = np.sort(np.argsort(-most, kind="stable")[:_MAX_NEIGHBOURS])
    return {
        "classes": kept.tolist(),
        **{role: shares[role][kept].tolist() if role in shares else None for role in _ROLES},
    }


def _harmed(subject: Subject) -> list[dict[str, Any]]:
    """Retained records with the largest loss of confidence in their label."""
    before = subject.original or next(iter(subject.retrained), None)
    if before is None:
        return []
    earlier, now = (subject.outputs(model, "retain") for model in (before, subject.model))
    then, after = np.exp(-earlier.loss), np.exp(-now.loss)
    worst = np.argsort(after - then, kind="stable")[:_HARMED]
    indices = subject.indices("retain")[worst]
    return [
        {
            "index": int(index),
            "label": int(now.labels[at]),
            "before": float(then[at]),
            "after": float(after[at]),
            "predicted": int(now.predicted[at]),
            "image": _image_of(subject, "retain", int(index)),
        }
        for at, index in zip(worst, indices, strict=True)
        if after[at] < then[at]
    ]


def _examples(subject: Subject) -> list[dict[str, Any]]:
    """A few forgotten records, drawn at random, with the predictions of every model."""
    indices = subject.indices("forget")
    found = {role: subject.outputs(model, "forget") for role, model in subject.models.items()}
    chosen = fixed_subset(np.arange(len(indices)), _EXAMPLES)
    return [
        {
            "index": int(indices[at]),
            "label": int(found["audited"].labels[at]),
            "image": _image_of(subject, "forget", int(indices[at])),
            **{role: _prediction(found[role], int(at)) if role in found else None for role in _ROLES},
        }
        for at in chosen
    ]


def _prediction(found: Outputs, at: int) -> dict[str, Any]:
    return {"predicted": int(found.predicted[at]), "confidence": float(np.exp(found.log_probabilities[at].max()))}


def _records(subject: Subject, findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Forgotten records with the highest scores first."""
    found = subject.outputs(subject.model, "forget")
    indices = subject.indices("forget")
    scores = _scores(subject, found, {one.name: one for one in findings})
    confidence, margin = np.exp(-found.loss), found.margin
    # Among equal scores, the larger margin is more exposed.
    order = np.lexsort((-margin, -scores))[:_EXPOSED]
    return [
        {
            "index": int(indices[at]),
            "label": int(found.labels[at]),
            "confidence": float(confidence[at]),
            "margin": float(margin[at]),
            "score": float(scores[at]) if math.isfinite(scores[at]) else None,
            "image": _image_of(subject, "forget", int(indices[at])),
        }
        for at in order
    ]


def _scores(subject: Subject, found: Outputs, findings: Mapping[str, Finding]) -> NDArray[np.float64]:
    """A membership score per forgotten record: from an attack per record, else the margin's rank among unseen data."""
    for name in _SCORED_BY:
        given = findings[name].details.get("records") if name in findings else None
        if given is not None:
            # What a retrained model's record scores is no exposure: leave-one-out scores are not centred at 0.5.
            floor = given.get("control") or [0.0] * len(given["score"])
            known = {i: s - c for i, s, c in zip(given["index"], given["score"], floor, strict=True)}
            scores = [known.get(int(index)) for index in subject.indices("forget")]
            return np.array([-np.inf if score is None else score for score in scores], dtype=np.float64)
    try:
        unseen = np.sort(subject.outputs(subject.model, "unseen").margin)
    except NotTestedError:
        return np.full(len(found.labels), -np.inf)
    ranks: NDArray[np.float64] = np.searchsorted(unseen, found.margin) / len(unseen)
    return ranks


def _image_of(subject: Subject, part: Part, index: int) -> str | None:
    with isolated(derive(subject.seed, "sample", index)):
        inputs = subject.task.adapter(subject.dataset(part)[index])[0]
    return picture(inputs)


def picture(inputs: Any) -> str | None:
    """A data URI of a small PNG, min–max scaled, if the input looks like an image; None otherwise.

    Images are (1 or 3)×H×W or H×W, or flat vectors of a square number of values that all lie in [−1, 1] or [0, 255].
    """
    if not isinstance(inputs, torch.Tensor | np.ndarray):
        return None
    pixels = _pixels(np.asarray(inputs.numpy(force=True) if isinstance(inputs, torch.Tensor) else inputs))
    if pixels is None:
        return None
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - low) * (255 / (high - low)) if high > low else np.zeros_like(pixels)
    stride = -(-max(scaled.shape[:2]) // _MAX_SIDE)
    content = encode_rgb(scaled[::stride, ::stride].round().astype(np.uint8))
    return f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"


def _pixels(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Pixels H×W or H×W×3; None if the values are not those of an image."""
    if values.dtype.kind not in "fiub" or values.size == 0:
        return None
    found: NDArray[np.float64] = values.astype(np.float64)
    if not np.isfinite(found).all():
        return None
    if found.ndim == 1:
        side = math.isqrt(len(found))
        low, high = found.min(), found.max()
        if side * side != len(found) or not ((low >= -1 and high <= 1) or (low >= 0 and high <= 255)):
            return None
        found = found.reshape(side, side)
    elif found.ndim == 3 and found.shape[0] in (1, 3):
        found = found[0] if found.shape[0] == 1 else found.transpose(1, 2, 0)
    elif found.ndim != 2:
        return None
    return found if min(found.shape[:2]) >= _MIN_SIDE else None
