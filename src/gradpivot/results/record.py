"""A record: one finished run of a sweep, as the store keeps it and the comparison reads it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures
from gradpivot.results._json import select
from gradpivot.results.frontier import Point

__all__ = ["RECORD_SCHEMA", "Record", "Role"]

RECORD_SCHEMA = "gradpivot.record/1"

Role = Literal["original", "retrained", "run"]
"""The model before unlearning, the reference without the forgotten data, or a method's run."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was run, on what, and what came out.

    Attributes:
        key: The hash of everything that decides the numbers: the run's identity.
        problem: The problem's name.
        kind: What was forgotten: ``class``, ``random``, ``index`` or ``predicate``.
        forget: The same for people: the class ``3``, the classes ``3,5``, the share ``10 %``.
        seed: Of the original, the reference and the run.
        role: Whether this is the original, the retrained reference or a method's run.
        protocol: ``paper``, ``clean`` or a recipe's own; empty for the original and the reference.
        series: The set the run belongs to, as tables and legends call it: ``CUP``, ``DCGD (avg)``.
        method: The method's registered name.
        point: Settings, scores, seconds, divergence.
        provenance: Split, versions, machine class, threads, date.
        pictures: What a generator drew, from the same seeds in every run; None for a classifier.
    """

    key: str
    problem: str
    kind: str
    forget: str
    seed: int
    role: Role
    protocol: str
    series: str
    method: str
    point: Point
    provenance: Mapping[str, Any] = field(default_factory=dict)
    pictures: Pictures | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version."""
        known = select(self, *(name for name in self.__dataclass_fields__ if name != "pictures"))
        return {"schema": RECORD_SCHEMA, **known, **({"pictures": self.pictures.to_dict()} if self.pictures else {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Read back what :meth:`to_dict` wrote.

        Raises:
            GradPivotError: if the schema is another one.
            ValueError, KeyError, TypeError: if something is missing or out of range.
        """
        if (schema := values.get("schema")) != RECORD_SCHEMA:
            raise GradPivotError(f"a record has the schema {schema!r}; this version reads {RECORD_SCHEMA!r}")
        known = {name: values[name] for name in cls.__dataclass_fields__ if name not in ("point", "pictures")}
        drawn = values.get("pictures")
        pictures = Pictures.from_dict(drawn) if drawn else None
        return cls(**known, point=Point.from_dict(values["point"]), pictures=pictures)

    def without_history(self) -> Record:
        """The record without its telemetry, which tables and fronts do not need."""
        return replace(self, point=replace(self.point, history={}))
