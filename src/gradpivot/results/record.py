"""Records of finished runs in a sweep's store. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gradpivot.errors import GradPivotError
from gradpivot.evaluate import Pictures
from gradpivot.results._json import select
from gradpivot.results.frontier import Point
from gradpivot.runtime import checked, describe_error

__all__ = ["RECORD_SCHEMA", "Record", "Role"]

RECORD_SCHEMA = "gradpivot.record/1"
_TYPES = {
    **dict.fromkeys(("key", "problem", "kind", "forget", "role", "protocol", "series", "method"), str),
    "seed": int, "provenance": Mapping,
}  # fmt: skip

Role = Literal["original", "retrained", "run"]
"""The original model, the model retrained without the forget set, or a run of a method."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run.

    Attributes:
        key: Hash of everything that affects the scores.
        problem: Name of the problem.
        kind: Kind of split: ``class``, ``random``, ``index`` or ``predicate``.
        forget: Readable forget set: class ``3``, classes ``3,5`` or fraction ``10 %``.
        seed: Seed of the original, the reference and the run.
        role: Original model, retrained model or run of a method.
        protocol: ``paper``, ``clean`` or one defined by a recipe; empty for original and retrained models.
        series: Name of the series in tables and legends: ``CUP``, ``DCGD (avg)``.
        method: Registered name of the method.
        point: Settings, scores, time, divergence.
        provenance: Split, versions, machine class, threads, date.
        pictures: Samples of a generator, from the same noise seeds in every run; None for a classifier.
        margins: Scaled margins of all targets of an audit, in the order of the forget set; None outside an audit's
            worlds, and for a diverged run.
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
    margins: Sequence[float] | None = None

    @property
    def is_shadow(self) -> bool:
        """Whether it belongs to a shadow world of an audit."""
        return "world" in self.provenance.get("cell", {}).get("target", {})

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version."""
        known = select(self, *(name for name in self.__dataclass_fields__ if name not in ("pictures", "margins")))
        if self.margins is not None:
            known["margins"] = list(self.margins)
        return {"schema": RECORD_SCHEMA, **known, **({"pictures": self.pictures.to_dict()} if self.pictures else {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Inverse of :meth:`to_dict`.

        Raises:
            GradPivotError: If the schema is unknown, or a value is missing, of another type or out of range.
        """
        try:
            if (schema := checked(values, schema=str)["schema"]) != RECORD_SCHEMA:
                raise ValueError(f"it has the schema {schema!r}; this version reads {RECORD_SCHEMA!r}")
            if checked(values, **_TYPES)["role"] not in get_args(Role):
                raise ValueError(f"role is {values['role']!r}; it must be one of {', '.join(get_args(Role))}")
            _check_provenance(values["provenance"])
            drawn, margins = values.get("pictures"), values.get("margins")
            return cls(
                **{name: values[name] for name in _TYPES},
                point=Point.from_dict(checked(values, point=Mapping)["point"]),
                pictures=Pictures.from_dict(drawn) if drawn else None,
                margins=None if margins is None else [float(margin) for margin in margins],
            )
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise GradPivotError(f"not a sound record of a run: {describe_error(error)}") from None

    def without_history(self) -> Record:
        """The record without telemetry, which tables and frontiers do not need."""
        return replace(self, point=replace(self.point, history={}))


def _check_provenance(values: Mapping[str, Any]) -> None:
    """Check what readers use: the name of the setting, and the cell's forget set."""
    checked({"setting_key": "", **values}, setting_key=str)
    checked(checked({"cell": {"target": {}}, **values}, cell=Mapping)["cell"], target=Mapping)
