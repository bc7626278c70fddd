"""The console summary: verdicts, then the numbers."""

from __future__ import annotations

from dataclasses import replace

from gradpivot.report.audit.console import audit_lines
from made_audit import made_attacks, made_audit


def test_each_question_has_its_verdict_before_the_table() -> None:
    lines = audit_lines(made_audit())
    assert lines[0] == "Audit: digits, class 3 forgotten (level standard)"
    table = next(i for i, line in enumerate(lines) if line.startswith("Attack "))
    for line in (
        "= Is a record recognisable as having been trained on? Indistinguishable.",
        "≠ Does forgotten knowledge return? Distinguishable.",
        "? Is the rest intact? Undetermined.",
    ):
        assert lines.index(line) < table
    assert "Fine-tuning on retained data: 23.1 % [19.1, 27.1], retrained 0.4 %, original 98.0 %." in "\n".join(lines)
    assert lines[-1] == "Not tested (2; audit.html gives the reasons): U-LiRA; RMIA"


def test_the_table_is_aligned_and_shows_all_numbers() -> None:
    lines = audit_lines(made_audit())
    start = next(i for i, line in enumerate(lines) if line.startswith("Attack "))
    rows = lines[start : start + 1 + len(made_attacks())]
    column = rows[0].index("Outcome")
    assert all(row[column - 2 : column] == "  " and row[column] != " " for row in rows)
    (tuned,) = (row for row in rows if row.startswith("Fine-tuning"))
    words = "Fine-tuning on retained data 23.1 % [19.1, 27.1] 0.4 % 98.0 % distinguishable"
    assert " ".join(tuned.split()) == words
    assert any(row.startswith("KLoM") and "0.412 nats [0.372, 0.452]" in row for row in rows)


def test_missing_parts_leave_no_empty_headings() -> None:
    record = made_audit(attacks=(), not_tested={}, verdicts={}, sections={}, provenance={}, problem={})
    assert audit_lines(record) == ["Audit: the forgotten class forgotten (level standard)"]


def test_a_random_subset_is_counted() -> None:
    problem = {"name": "digits", "kind": "random", "n_forget": 1437, "classes": []}
    assert audit_lines(made_audit(problem=problem))[0].startswith("Audit: digits, 1,437 records forgotten")


def test_names_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\nAll is well\r"
    attacks = [replace(found, title=evil) for found in made_attacks()]
    lines = audit_lines(made_audit(attacks=tuple(attacks), problem={"name": evil}, not_tested={evil: evil}))
    assert all(letter.isprintable() for line in lines for letter in line)
