"""MIA by a threshold and by the paper's SVC, and the AUC: can forget samples be told from never-seen data?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradpivot.evaluate.metrics.metric import Metric, Verdict

if TYPE_CHECKING:
    from gradpivot.evaluate.classifiers.evaluation import SetPredictions

__all__ = ["AUC", "MIA", "MIA_SVC"]

# The attacks are imported when they run: a description needs no NumPy.


def _threshold(members: Any, nonmembers: Any, forget: SetPredictions) -> float:
    from gradpivot.evaluate.classifiers.membership import threshold_attack

    return threshold_attack(members, nonmembers, forget.confidence).share


def _svc(members: Any, nonmembers: Any, forget: SetPredictions) -> Verdict:
    from gradpivot.evaluate.classifiers.membership import svc_attack

    found = svc_attack(members, nonmembers, forget.confidence)
    return Verdict(found.share, found.accuracy, found.determined)


def _auc(forget: SetPredictions, unseen: SetPredictions) -> float:
    from gradpivot.evaluate.classifiers.membership import attack_auc

    auc = attack_auc(forget.confidence, unseen.confidence)
    return max(auc, 1 - auc)


MIA = Metric(
    name="mia", label="called non-member",
    meaning="Share of the forget set that a membership attack calls non-member: best single threshold on the "
    "true-label confidence (clean form).",
    compute=_threshold, ideal=1.0, share_of="forget", against="test data the model never saw",
    in_standings=True, is_attack=True,
)  # fmt: skip
MIA_SVC = Metric(
    name="mia_svc", symbol="MIA-SVC", variant_of="mia",
    meaning="The same by the paper's RBF-kernel SVC. Undetermined (*) where that SVC is right on under 55 % of its own "
    "training points: members and non-members look alike and its answer is noise.",
    compute=_svc, ideal=1.0, share_of="forget", against="test data the model never saw",
    is_attack=True, may_be_undetermined=True,
)  # fmt: skip
AUC = Metric(
    name="auc", direction="lower", to_reference=False, ideal=0.5, least=0.5,
    meaning="AUC of an attack that tells forget samples from never-seen data of the same kind by their confidence, "
    "whichever side is the more confident one.",
    compute=_auc, against="never-seen data of the same kind", is_attack=True, on_request=True,
)  # fmt: skip
