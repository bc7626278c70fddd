"""KLoM: KL divergence of margins, unlearned models against retrained ones (Georgiev et al. 2024).

For each record, P are the margins of the models that unlearned it (in the worlds where it is inside) and Q those of
models retrained without it in the other worlds. Both are binned into ``BINS`` equal bins over their joint range,
with the smoothed shares (count + 1/BINS) / (n + 1), one sample's weight in all; the value is the mean of KL(P ‖ Q)
over records.

Binned KL divergences of few samples are biased upwards, and smoothing limits them. Comparisons are fair because the
control, retrained against retrained, has P from the same worlds and thus the same numbers of samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gradpivot.auditing.attack import Attack, Measurement
from gradpivot.auditing.attacks.ulira import margins_of, worlds_of
from gradpivot.auditing.statistics import jackknife

if TYPE_CHECKING:
    from gradpivot.auditing.subject import Subject

__all__ = ["BINS", "KLOM", "record_divergences"]

BINS = 20
"""Bins of the margins' histograms."""

_Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]


def record_divergences(margins: _Array, retrained: _Array, inside: _Mask) -> _Array:
    """KL(P ‖ Q) per record in nats: ``margins`` where inside against ``retrained`` where outside.

    Args:
        margins: Worlds × records.
        retrained: Worlds × records.
        inside: Worlds × records.

    Returns:
        One value per record; NaN for a record that is always on one side.
    """
    mixed = inside.any(axis=0) & ~inside.all(axis=0)
    joint = np.where(inside, margins, retrained)
    low, high = joint.min(axis=0), joint.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    bins = np.minimum((BINS * (joint - low) / width).astype(int), BINS - 1)
    members = bins[None] == np.arange(BINS)[:, None, None]
    p, q = (_smoothed((members & side).sum(axis=1)) for side in (inside, ~inside))
    divergences: _Array = np.where(mixed, (p * np.log(p / q)).sum(axis=0), np.nan)
    return divergences


def _smoothed(counts: NDArray[np.int64]) -> _Array:
    shares: _Array = (counts + 1 / BINS) / (counts.sum(axis=0) + 1)
    return shares


def _measure(subject: Subject) -> Measurement:
    worlds = worlds_of(subject, "KLoM")
    inside = np.asarray(worlds.inside, dtype=bool)
    margins = margins_of(worlds)

    def mean(role: str, kept: NDArray[np.intp]) -> float:
        return float(np.nanmean(record_divergences(margins[role][kept], margins["retrained"][kept], inside[kept])))

    every = np.arange(len(inside))
    audited, retrained, original = (mean(role, every) for role in ("audited", "retrained", "original"))
    errors = jackknife(
        lambda kept: [mean("audited", kept), mean("audited", kept) - mean("retrained", kept)], len(every)
    )
    own, error = errors.tolist()
    return Measurement(
        value=audited,
        n=inside.shape[1],
        interval=(max(0.0, audited - 1.96 * own), audited + 1.96 * own),
        control=retrained,
        original=original,
        difference=audited - retrained,
        error=error,
        note=f"{len(every)} worlds. The control is retrained against retrained models: all of it is bias.",
        details={"records": _records(worlds.indices, margins, inside)},
    )


def _records(indices: NDArray[np.int64], margins: dict[str, _Array], inside: _Mask) -> dict[str, list[float]]:
    """Training indices and divergences, largest first."""
    audited, retrained = (
        record_divergences(margins[role], margins["retrained"], inside) for role in ("audited", "retrained")
    )
    order = np.argsort(-audited, kind="stable")
    order = order[np.isfinite(audited[order])]
    found = {"index": np.asarray(indices), "score": audited, "control": retrained}
    return {name: values[order].tolist() for name, values in found.items()}


KLOM = Attack(
    name="klom",
    title="KLoM",
    question="membership",
    meaning="Mean over records of the KL divergence between the margins of unlearned and of retrained models; biased "
    "upwards for few models, so compare it with the control.",
    measure=_measure,
    level="full",
    unit="nats",
    direction="higher",
    decides=False,
    threat="Not an attack by itself: how far apart the margins of unlearned and retrained models are.",
)
