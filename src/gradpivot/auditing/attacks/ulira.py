"""U-LiRA: is a record recognisable after unlearning, by an attacker who repeats the procedure on shadow models?

In each world every target record is in the training set, and then unlearned, with probability ½. The attack guesses
from the margin which records those were; see :mod:`gradpivot.auditing.lira` for the score. Margins of the same worlds
retrained without the targets are the control: no attack can do better than chance there. The standard error of the
difference is a delete-one-world jackknife with refitted Gaussians, paired, because the decisions within a world depend
on each other. Near chance, where a world speaks only through its pairs with others, it is up to √2 too large: the
verdict errs towards *undetermined*.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradpivot.auditing.attack import Attack, Measurement, NotApplicableError, NotTestedError
from gradpivot.auditing.lira import lira_scores, record_aucs
from gradpivot.auditing.statistics import auc, jackknife, roc, tpr_at, wald

if TYPE_CHECKING:
    from gradpivot.auditing.subject import Subject
    from gradpivot.auditing.worlds import Worlds

__all__ = ["ULIRA", "ULIRA_TPR", "margins_of", "worlds_of"]

_FPR = 0.01
_FEWEST_WORLDS = 4
_ENOUGH_WORLDS = 8
"""Below this the standard error over worlds is too uncertain to decide by."""

_Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]


def worlds_of(subject: Subject, attack: str) -> Worlds:
    """The subject's worlds.

    Raises:
        NotTestedError: If there are none, too few, or the unlearning could not be repeated in them.
    """
    worlds = subject.worlds
    if worlds is None:
        raise NotApplicableError(
            f"{attack} needs shadow models: level full, and a problem on which the method can be repeated as it was run"
        )
    if worlds.unlearned is None:
        raise NotApplicableError("unlearned by other software: its procedure cannot be repeated on shadow models")
    if len(worlds.inside) < _FEWEST_WORLDS:
        raise NotTestedError(f"{attack} needs at least {_FEWEST_WORLDS} worlds; there are {len(worlds.inside)}")
    members = np.asarray(worlds.inside).sum(axis=0)
    if not ((members >= 2) & (members <= len(worlds.inside) - 2)).any():
        raise NotTestedError(f"{attack} needs records that are inside at least two worlds and outside two others")
    return worlds


def margins_of(worlds: Worlds) -> dict[str, _Array]:
    """Margins (worlds × records) by role: ``audited``, ``retrained`` and ``original``."""
    found = {"audited": worlds.unlearned, "retrained": worlds.retrained, "original": worlds.shadow}
    return {role: np.asarray(margins, np.float64) for role, margins in found.items() if margins is not None}


def _rates(margins: _Array, inside: _Mask) -> tuple[float, float]:
    """AUC, and TPR at 1 % FPR."""
    scores = lira_scores(margins, inside)
    members, others = scores[inside], scores[~inside]
    return auc(members, others), tpr_at(members, others, _FPR).tpr


@lru_cache(maxsize=1)
def _all_rates(worlds: Worlds) -> tuple[dict[str, tuple[float, float]], _Array]:
    """Both rates by role; standard errors (2×2) of the audited ones and of their differences to the control."""
    margins, inside = margins_of(worlds), np.asarray(worlds.inside, dtype=bool)

    def estimates(kept: NDArray[np.intp]) -> _Array:
        audited, retrained = (np.array(_rates(margins[role][kept], inside[kept])) for role in ("audited", "retrained"))
        return np.stack([audited, audited - retrained])

    return {role: _rates(one, inside) for role, one in margins.items()}, jackknife(estimates, len(inside))


def _measurement(subject: Subject, which: int) -> Measurement:
    worlds = worlds_of(subject, "U-LiRA")
    rates, errors = _all_rates(worlds)
    audited, retrained, original = (rates[role][which] for role in ("audited", "retrained", "original"))
    return Measurement(
        value=audited,
        n=worlds.inside.size,
        interval=wald(audited, float(errors[0, which])),
        control=retrained,
        original=original,
        difference=audited - retrained,
        error=float(errors[1, which]) if len(worlds.inside) >= _ENOUGH_WORLDS else None,
        note=_note(worlds),
    )


def _note(worlds: Worlds) -> str:
    count, records = worlds.inside.shape
    dropped = f" {worlds.diverged} further worlds diverged and were left out." if worlds.diverged else ""
    few = "" if count >= _ENOUGH_WORLDS else f" Fewer than {_ENOUGH_WORLDS} worlds: not decided."
    return f"{records} records in {count} worlds, each unlearned with {worlds.method or 'the method'}.{dropped}{few}"


def _measure_auc(subject: Subject) -> Measurement:
    return _measurement(subject, 0)._replace(details=_details(worlds_of(subject, "U-LiRA")))


def _measure_tpr(subject: Subject) -> Measurement:
    return _measurement(subject, 1)


def _details(worlds: Worlds) -> dict[str, Any]:
    """ROC curves, rates at 1 % FPR, and the records, most recognisable first."""
    inside = np.asarray(worlds.inside, dtype=bool)
    scores = {role: lira_scores(margins, inside) for role, margins in margins_of(worlds).items()}
    return {
        "roc": {role: roc(found[inside], found[~inside])._asdict() for role, found in scores.items()},
        "tpr": {role: tpr_at(found[inside], found[~inside], _FPR).tpr for role, found in scores.items()},
        "records": _records(worlds, scores, inside),
    }


def _records(worlds: Worlds, scores: dict[str, _Array], inside: _Mask) -> dict[str, list[float]]:
    """Training indices and AUC over the worlds of each record, for the audited model and the control."""
    audited, retrained = (record_aucs(scores[role], inside) for role in ("audited", "retrained"))
    order = np.argsort(-audited, kind="stable")
    order = order[np.isfinite(audited[order])]
    found = {"index": np.asarray(worlds.indices), "score": audited, "control": retrained}
    return {name: values[order].tolist() for name, values in found.items()}


_BY_SHADOWS = (
    "Someone who holds the record, can query the model, and can train and unlearn similar models: the worst case."
)

ULIRA = Attack(
    name="ulira",
    title="U-LiRA",
    question="membership",
    meaning="AUC of telling records that were trained on and unlearned from records never trained on, with Gaussians "
    "fitted per record to the margins of shadow models.",
    measure=_measure_auc,
    level="full",
    unit="",
    direction="higher",
    margin=0.05,
    threat=_BY_SHADOWS,
)

ULIRA_TPR = Attack(
    name="ulira_tpr",
    title="U-LiRA, TPR at 1 % FPR",
    question="membership",
    meaning="Share of the unlearned records that U-LiRA recognises when it is wrong about 1 % of the others.",
    measure=_measure_tpr,
    level="full",
    direction="higher",
    decides=False,
    margin=0.05,
    threat=_BY_SHADOWS,
)
