"""The audit page: one HTML file that opens offline and prints on A4."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from gradpivot.report.audit import sections
from gradpivot.report.audit.charts import audit_payload
from gradpivot.report.audit.wording import audit_title
from gradpivot.report.common.markup import fill_page
from gradpivot.results import AuditRecord

__all__ = ["render_audit"]

_ROC_NOTE = (
    "Both axes are logarithmic: what matters is how many members are found at a low false-positive rate. The plain "
    "line is chance. A rate of zero is drawn at the edge."
)
_CURVE_NOTE = (
    "Accuracy on the forgotten data while each model gets the same treatment. Only a gap between the audited and the "
    "retrained model is evidence."
)


def render_audit(record: AuditRecord) -> str:
    """The page as HTML."""
    data = audit_payload(record)
    more = record.sections
    parts = (
        sections.reading_section(),
        sections.threat_section(record),
        sections.attack_section(record),
        sections.chart_section("roc", "ROC curves of the membership attacks", data["rocs"], _ROC_NOTE),
        sections.chart_section("curve", "Tampering", data["curves"], _CURVE_NOTE),
        sections.bar_section(next(iter(data["bars"]), None)),
        sections.class_section(more.get("classes")),
        sections.record_section(more.get("records")),
        sections.harmed_section(more.get("harmed")),
        sections.example_section(more.get("examples")),
        sections.calibration_section(more.get("calibration")),
        sections.not_tested_section(record),
        sections.provenance_section(record),
    )
    return fill_page(
        "audit",
        audit_title(record),
        data,
        meta=escape(_meta(record)),
        cards=sections.verdict_cards(record),
        sections="".join(parts),
    )


def _meta(record: AuditRecord) -> str:
    method, environment = record.provenance.get("method"), record.provenance.get("environment")
    name = method.get("method") if isinstance(method, Mapping) else method
    date = environment.get("date") if isinstance(environment, Mapping) else None
    parts = (name, f"level {record.level}", f"{len(record.attacks)} attacks", date)
    return " · ".join(str(part) for part in parts if part)
