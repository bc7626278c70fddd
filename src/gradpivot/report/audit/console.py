"""The console summary of an audit."""

from __future__ import annotations

from gradpivot.report.audit.wording import OUTCOME_SIGNS, THREATS, audit_title, value_text
from gradpivot.results import QUESTIONS, AuditRecord, Finding

__all__ = ["audit_lines"]


def audit_lines(record: AuditRecord) -> list[str]:
    """The verdict on each question, then a table of the attacks: value [interval], control, original, outcome."""
    lines = [f"{audit_title(record)} (level {record.level})", *_verdict_lines(record)]
    if record.attacks:
        lines += ["", *_table(record)]
    if count := len(record.not_tested):
        lines += ["", f"Not tested ({count}; audit.html gives the reasons): {'; '.join(record.not_tested)}"]
    return [_printable(line) for line in lines]


def _verdict_lines(record: AuditRecord) -> list[str]:
    lines: list[str] = []
    for name, question in QUESTIONS.items():
        if verdict := record.verdicts.get(name):
            sign = OUTCOME_SIGNS.get(verdict.outcome, "?")
            lines += ["", f"{sign} {question} {verdict.outcome.capitalize()}.", f"  {verdict.sentence}"]
    return lines


def _table(record: AuditRecord) -> list[str]:
    rows = [("Attack", "Value [95 %]", "Control", "Original", "Outcome")]
    rows += [_row(found) for name in THREATS for found in record.attacks if found.question == name]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_pad(cells, widths)).rstrip() for cells in rows]


def _row(found: Finding) -> tuple[str, str, str, str, str]:
    title = found.title if len(found.title) <= 40 else f"{found.title[:39]}…"
    original = found.text(found.original)
    return title, value_text(found), found.control_text, original, found.outcome or "for information"


def _pad(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    first, *numbers, last = zip(cells, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in numbers), last[0]]


def _printable(line: str) -> str:
    """Replace control characters: a name must not move the cursor or add a line."""
    return "".join(letter if letter.isprintable() else "�" for letter in line)
