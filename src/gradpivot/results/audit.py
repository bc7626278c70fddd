"""The findings of an audit as plain JSON-able data, and the rule that turns them into verdicts. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any, Literal

from gradpivot.errors import GradPivotError

__all__ = ["AUDIT_SCHEMA", "QUESTIONS", "AuditRecord", "AuditVerdict", "Finding", "Outcome", "judge", "verdict_on"]

AUDIT_SCHEMA = "gradpivot.audit/1"

Outcome = Literal["indistinguishable", "distinguishable", "undetermined"]
Interval = tuple[float, float]

QUESTIONS: Mapping[str, str] = {
    "membership": "Is a record recognisable as having been trained on?",
    "knowledge": "Does forgotten knowledge return?",
    "collateral": "Is the rest intact?",
}
"""The three questions of an audit."""

ERROR_RATE = 0.05
"""Probability that a retrained model is called distinguishable on a question."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one attack found, with everything a reader needs to judge it.

    Attributes:
        name: Identifier, such as ``margin_auc``.
        title: Name for people.
        question: One of :data:`QUESTIONS`.
        meaning: One sentence: what was measured.
        unit: ``%`` for fractions, which are shown in percent; empty for plain numbers.
        direction: The deviation from the control that is evidence: ``higher``, ``lower`` or ``two-sided``.
        decides: Whether the verdict depends on it; others are shown for information.
        value: For the audited model.
        interval: 95 % interval of the value.
        control: What the value is compared with.
        control_is: ``retrained``; ``theory`` for the value that theory gives for a retrained model; or ``original``.
        original: For the original model.
        difference: Value minus control, as compared (paired where possible).
        error: Standard error of the difference.
        noise: Largest difference between retrained models: not evidence by itself.
        margin: Differences below this are called indistinguishable if the interval excludes larger ones.
        n: Number of samples behind the value.
        outcome: By :func:`judge`; None for findings that do not decide.
        threat: Who could do this, with what access.
        note: A remark on this number.
        details: Curves, per-record values and the like.
    """

    name: str
    title: str
    question: str
    meaning: str
    unit: str = "%"
    direction: Literal["two-sided", "higher", "lower"] = "two-sided"
    decides: bool = True
    value: float
    interval: Interval | None = None
    control: float | None = None
    control_is: Literal["retrained", "theory", "original"] = "retrained"
    original: float | None = None
    difference: float | None = None
    error: float | None = None
    noise: float = 0.0
    margin: float = 0.1
    n: int = 0
    outcome: Outcome | None = None
    threat: str = ""
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """Inverse of ``dataclasses.asdict``."""
        interval = values.get("interval")
        return cls(**{**values, "interval": None if interval is None else (interval[0], interval[1])})

    def text(self, value: float | None, digits: int | None = None) -> str:
        """Format a value with its unit: ``97.3 %``; ``0.512``; ``–`` if there is none."""
        if value is None or not math.isfinite(value):
            return "–"
        if self.unit == "%":
            return f"{100 * value:.{1 if digits is None else digits}f} %"
        return f"{value:.{3 if digits is None else digits}f} {self.unit}".rstrip()

    @property
    def has_power(self) -> bool:
        """Whether the attack could have found something: it tells the original model from the control, if known."""
        if self.question == "collateral" or self.original is None or self.control is None:
            return True
        return abs(self.original - self.control) >= self.margin / 2

    @property
    def control_text(self) -> str:
        """The control for display; says so if it is not a retrained model."""
        source = "" if self.control is None or self.control_is == "retrained" else f" ({self.control_is})"
        return f"{self.text(self.control)}{source}"


@dataclass(frozen=True, kw_only=True)
class AuditVerdict:
    """The answer to one question.

    Attributes:
        question: Key of :data:`QUESTIONS`.
        outcome: The answer.
        sentence: The answer in words, with the number behind it.
        decided_by: Name of the finding it rests on most; empty if there is none.
    """

    question: str
    outcome: Outcome
    sentence: str
    decided_by: str = ""


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """A finished audit.

    Attributes:
        verdicts: By question.
        attacks: The findings, in the order they were made.
        level: ``quick``, ``standard`` or ``full``.
        problem: What was forgotten from what.
        not_tested: Attack titles with the reason each was left out.
        sections: Data of the page: ``roc``, ``records``, ``classes``, ``examples``, ….
        provenance: Hashes of models, data, split and code; seeds, machine class, date, command.
    """

    verdicts: Mapping[str, AuditVerdict]
    attacks: tuple[Finding, ...]
    level: str
    problem: Mapping[str, Any]
    not_tested: Mapping[str, str]
    sections: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def finding(self, name: str) -> Finding:
        """The finding of that name.

        Raises:
            GradPivotError: If the audit has none.
        """
        for found in self.attacks:
            if found.name == name:
                return found
        raise GradPivotError(f"the audit has no finding {name!r}; it has {', '.join(one.name for one in self.attacks)}")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version."""
        return {
            "schema": AUDIT_SCHEMA,
            "level": self.level,
            "problem": dict(self.problem),
            "verdicts": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "attacks": [asdict(found) for found in self.attacks],
            "not_tested": dict(self.not_tested),
            "sections": dict(self.sections),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AuditRecord:
        """Inverse of :meth:`to_dict`.

        Raises:
            GradPivotError: If the schema is another one.
        """
        if (schema := values.get("schema")) != AUDIT_SCHEMA:
            raise GradPivotError(f"this audit has schema {schema!r}; this version reads {AUDIT_SCHEMA!r}")
        return cls(
            verdicts={name: AuditVerdict(**verdict) for name, verdict in values["verdicts"].items()},
            attacks=tuple(Finding.from_dict(found) for found in values["attacks"]),
            **{name: values[name] for name in ("level", "problem", "not_tested", "sections", "provenance")},
        )


def judge(found: Finding, comparisons: int = 1) -> Outcome:
    """The outcome of one finding.

    Distinguishable if the interval of the difference lies beyond the noise between retrained models; the interval is
    widened (Bonferroni) for ``comparisons`` deciding findings, so that a retrained model is called distinguishable on
    a question with a probability of at most 5 %. Indistinguishable if tests at 5 % exclude a difference beyond the
    margin: in both directions, or in the one that matters (no worse, not recognisable) for a one-sided finding.
    Undetermined otherwise: too few samples, no control, or retrained models that differ by more than the margin.
    """
    if found.difference is None or found.error is None or found.control is None:
        return "undetermined"
    evidence = {"higher": found.difference, "lower": -found.difference, "two-sided": abs(found.difference)}
    towards = evidence[found.direction]
    tails = 2 if found.direction == "two-sided" else 1
    if towards - _quantile(1 - ERROR_RATE / (tails * comparisons)) * found.error > found.noise:
        return "distinguishable"
    if found.noise <= found.margin and towards + _quantile(1 - ERROR_RATE) * found.error < found.margin:
        return "indistinguishable"
    return "undetermined"


def verdict_on(question: str, findings: Iterable[Finding], missing: Mapping[str, str] | None = None) -> AuditVerdict:
    """Combine the judged findings on a question: one distinguishable finding decides.

    An attack that cannot tell the original model from the control says nothing for the audited one, unless it
    distinguishes it.

    Args:
        question: Key of :data:`QUESTIONS`.
        findings: Judged findings; those on other questions and those that do not decide are ignored.
        missing: Deciding attacks on this question that could not be run, with the reason. Without them nothing is
            called indistinguishable.
    """
    everything = [found for found in findings if found.question == question and found.outcome is not None]
    deciding = [found for found in everything if found.has_power or found.outcome == "distinguishable"]
    if everything and not deciding:
        reason = f"none of the {len(everything)} attacks tells even the original model from a retrained one"
        return AuditVerdict(question=question, outcome="undetermined", sentence=f"Not determined: {reason}.")
    for outcome in ("distinguishable", "undetermined", "indistinguishable"):
        if outcome == "indistinguishable" and missing:
            break
        if held := [found for found in deciding if found.outcome == outcome]:
            strongest = max(held, key=_strength)
            return AuditVerdict(
                question=question,
                outcome=strongest.outcome or "undetermined",
                sentence=_sentence(strongest, held, deciding),
                decided_by=strongest.name,
            )
    names = "; ".join(f"{title} ({reason})" for title, reason in (missing or {}).items())
    reason = f"these attacks could not be run: {names}" if names else "no attack on this question could be run"
    return AuditVerdict(question=question, outcome="undetermined", sentence=f"Not determined: {reason}.")


def _strength(found: Finding) -> float:
    """Difference beyond the noise in standard errors, for choosing the finding to name."""
    if found.difference is None:
        return -math.inf
    towards = {"higher": found.difference, "lower": -found.difference}.get(found.direction, abs(found.difference))
    return (towards - found.noise) / (found.error or 1e-12)


_CONTROLS = {"retrained": "retrained", "theory": "retrained by theory", "original": "original"}


def _sentence(named: Finding, held: list[Finding], deciding: list[Finding]) -> str:
    control = "" if named.control is None else f", {_CONTROLS[named.control_is]} {named.text(named.control)}"
    beside = named.original if named.control_is != "original" else None
    original = "" if beside is None else f", original {named.text(beside)}"
    number = f"{named.title}: {named.text(named.value)}{_span(named)}{control}{original}"
    whom = "the original model" if any(one.control_is == "original" for one in deciding) else "retraining"
    if named.outcome == "undetermined":
        return f"Not determined by {len(held)} of {len(deciding)} tests: {_why_undetermined(named)}. {number}."
    answer = _ANSWERS[named.question, named.outcome or ""].format(whom=whom)
    if named.outcome == "distinguishable":
        return f"{answer}, by {len(held)} of {len(deciding)} tests. {number}."
    return f"{answer}, by all {len(deciding)} tests. Nearest to a difference: {number}."


_ANSWERS = {
    ("membership", "distinguishable"): "Yes: it can be told from {whom}",
    ("membership", "indistinguishable"): "No more than after retraining",
    ("knowledge", "distinguishable"): "The model can be told from {whom}",
    ("knowledge", "indistinguishable"): "No more than after retraining",
    ("collateral", "distinguishable"): "No: it is worse than {whom}",
    ("collateral", "indistinguishable"): "Yes: no worse than {whom}",
}
"""The answer to each question in words."""


def _why_undetermined(found: Finding) -> str:
    if found.control is None:
        return "no retrained model to compare with"
    if found.noise > found.margin:
        return "retrained models differ by more than the margin"
    if found.error is None:
        return found.note.rstrip(".") or "the error is unknown"
    if found.difference is not None and 0 < found.noise < abs(found.difference) < found.margin:
        limits = f"the noise ({found.text(found.noise)}) and the margin ({found.text(found.margin)})"
        return f"the difference lies between {limits}; pass several retrained models"
    return f"too few samples (n = {found.n})"


def _span(found: Finding) -> str:
    if found.interval is None:
        return ""
    low, high = (found.text(bound).removesuffix(" %") for bound in found.interval)
    return f" [{low}, {high}]"


def _quantile(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
