"""Membership-inference metrics: MIA by a threshold, MIA by the paper's SVC, AUC, and RMIA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradpivot.evaluate.metrics.metric import Metric, Verdict

if TYPE_CHECKING:
    from gradpivot.evaluate.classifiers.evaluation import ReferencePredictions, SetPredictions

__all__ = ["AUC", "MARGIN_AUC", "MIA", "MIA_SVC", "RMIA"]

# The attacks are imported when they run, so that listing metrics does not import NumPy.


def _threshold(members: Any, nonmembers: Any, forget: SetPredictions) -> Verdict:
    from gradpivot.evaluate.classifiers.membership import threshold_attack

    found = threshold_attack(members, nonmembers, forget.confidence)
    return Verdict(found.share, found.accuracy, found.determined)


def _svc(members: Any, nonmembers: Any, forget: SetPredictions) -> Verdict:
    from gradpivot.evaluate.classifiers.membership import svc_attack

    found = svc_attack(members, nonmembers, forget.confidence)
    return Verdict(found.share, found.accuracy, found.determined)


def _auc(forget: SetPredictions, unseen: SetPredictions) -> float:
    from gradpivot.evaluate.classifiers.membership import attack_auc

    return attack_auc(forget.confidence, unseen.confidence)


def _rmia(forget: SetPredictions, unseen: SetPredictions, references: ReferencePredictions) -> float:
    from gradpivot.evaluate.classifiers.membership import rmia_auc

    offset = {"offset": 1.0} if references.is_class else {}
    return rmia_auc(forget.confidence, unseen.confidence, references.forget, references.unseen, **offset)


MIA = Metric(
    name="mia", label="called non-member",
    meaning="Share of the forget set that a membership-inference attack classifies as non-member: best single "
    "threshold on the true-label confidence. Undetermined (*) where members and non-members look alike: the attack's "
    "balanced training accuracy is below 55 %.",
    compute=_threshold, ideal=1.0, share_of="forget", against="test data the model has never seen",
    in_standings=True, headline="class", is_attack=True, may_be_undetermined=True,
)  # fmt: skip
MIA_SVC = Metric(
    name="mia_svc", symbol="MIA-SVC", variant_of="mia",
    meaning="The same with the paper's RBF-kernel SVC. Undetermined (*) where that SVC's training accuracy is below "
    "55 %.",
    compute=_svc, ideal=1.0, share_of="forget", against="test data the model has never seen",
    headline="class", is_attack=True, may_be_undetermined=True,
)  # fmt: skip
AUC = Metric(
    name="auc", direction="lower", to_reference=False, ideal=0.5, two_sided=True,
    meaning="AUC of an attack that separates forget samples from comparable unseen samples by confidence. Above 50 % "
    "they are remembered, below over-forgotten.",
    compute=_auc, against="comparable unseen data", is_attack=True, on_request=True, headline="records",
)  # fmt: skip
# The scaled margin log p/(1 − p) orders samples as the confidence p does, so both have the same AUC. The audit's name.
MARGIN_AUC = Metric(
    name="margin_auc", symbol="MARGIN-AUC", direction="lower", to_reference=False, ideal=0.5, two_sided=True,
    meaning="AUC, under the name of the audit's margin attack: the scaled margin orders samples like the confidence, "
    "except where that is 1 to float64 precision.",
    compute=_auc, against="comparable unseen data", is_attack=True, on_request=True,
)  # fmt: skip
RMIA = Metric(
    name="rmia", direction="lower", to_reference=False, ideal=0.5, two_sided=True,
    meaning="AUC of separating forget samples from comparable unseen samples by how much likelier the model finds them "
    "than reference models that never saw them.",
    compute=_rmia, against="comparable unseen data", is_attack=True, on_request=True,
)  # fmt: skip
