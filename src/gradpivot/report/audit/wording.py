"""Texts of the audit report: title, outcomes, threat model, how to read it, and numbers with their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gradpivot.report.common.wording import MISSING, forgotten, is_number, judged_by_gap
from gradpivot.results import AuditRecord, Finding

__all__ = [
    "HOW_TO_READ",
    "OUTCOME_SIGNS",
    "ROLES",
    "THREATS",
    "audit_title",
    "difference_text",
    "noise_text",
    "value_text",
]  # fmt: skip

ROLES: Mapping[str, str] = {"audited": "Audited", "retrained": "Retrained", "original": "Original"}
"""The compared models and their names on the page."""

OUTCOME_SIGNS: Mapping[str, str] = {"indistinguishable": "=", "distinguishable": "≠", "undetermined": "?"}
"""A sign for each outcome, so that it does not depend on colour."""

HOW_TO_READ = (
    "Each attack runs on three models: the audited one, a model retrained without the forgotten data (the control), "
    "and the original model before unlearning.",
    "= indistinguishable: the tests exclude a difference from retraining beyond the margin.",
    "≠ distinguishable: a test found a difference that neither chance nor the noise between retrained models explains.",
    "? undetermined: there are too few samples, no retrained model, or no attack that finds even the original model.",
    "One distinguishable test decides a question. Thresholds are corrected for the number of tests, so that "
    "a retrained model is called distinguishable on a question with a probability of at most about 5 %.",
    "Read each value next to its control: the retrained model, unless the table says (theory) or (original). A "
    "retrained model generalises and relearns too; only the difference is evidence.",
    "Brackets hold the 95 % interval of the value. ± is one standard error of the difference, in percentage points "
    "(pp) for percentages. n is the number of samples.",
    "Noise is a difference that is normal between retrained models: an assumed value, or the measured one if that is "
    "larger and several were given. A smaller difference is not evidence. Beyond the margin, nothing counts as equal.",
    "Membership and knowledge count in both directions: records on which the model is conspicuously wrong give "
    "themselves away as well. Collateral counts losses only.",
    "Indistinguishable is no proof of deletion. It holds for the attacks, data and seeds listed here; see what was not "
    "tested.",
)

THREATS: Mapping[str, tuple[str, str]] = {
    "membership": (
        "Membership",
        "The attacker has a candidate record with its label and queries the audited model for its output "
        "probabilities. At level full the attacker also knows the training procedure and the unlearning method, and "
        "trains shadow models on similar data. Goal: find out whether the record was in the training set.",
    ),
    "knowledge": (
        "Knowledge",
        "The attacker has the weights of the audited model and fine-tunes, quantises, prunes or probes it, with "
        "retained data or a few forgotten examples. Goal: get the forgotten ability back with less effort than from a "
        "model that never had it.",
    ),
    "collateral": (
        "Collateral",
        "There is no attacker. The users of the model have retained and test data and compare its outputs with those "
        "of the original and the retrained model. Goal: find classes and records that unlearning changed or exposed.",
    ),
}
"""Name of each question and what its attacker has and wants."""


def audit_title(record: AuditRecord) -> str:
    """What was audited: ``Audit: digits, class 3 forgotten``."""
    name, count = record.problem.get("name"), record.problem.get("n_forget")
    is_counted = is_number(count) and judged_by_gap(str(record.problem.get("kind", "class")))
    what = f"{count:,} records" if is_counted else forgotten(record.problem)
    return f"Audit: {f'{name}, ' if name else ''}{what} forgotten"


def value_text(found: Finding) -> str:
    """The value with its interval: ``51.2 % [48.0, 54.4]``."""
    if found.interval is None:
        return found.text(found.value)
    low, high = (_bare(found, bound) for bound in found.interval)
    return f"{found.text(found.value)} [{low}, {high}]"


def difference_text(found: Finding) -> str:
    """The difference to the control with its standard error: ``+1.2 ± 0.9 pp``."""
    if found.difference is None or not math.isfinite(found.difference):
        return MISSING
    sign = "+" if found.difference > 0 else ""
    error = "" if found.error is None else f" ± {_bare(found, found.error)}"
    return f"{sign}{_bare(found, found.difference)}{error}{_gap_unit(found)}"


def noise_text(found: Finding) -> str:
    """Noise and margin in the unit of differences: ``2.0, 10.0 pp``."""
    return f"{_bare(found, found.noise)}, {_bare(found, found.margin)}{_gap_unit(found)}"


def _bare(found: Finding, value: float) -> str:
    return found.text(value).removesuffix(f" {found.unit}")


def _gap_unit(found: Finding) -> str:
    unit = "pp" if found.unit == "%" else found.unit
    return f" {unit}" if unit else ""
