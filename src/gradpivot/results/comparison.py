"""A comparison: the frontiers of several methods on one problem, with their provenance.

This is ``results.json``: everything the tables, figures and the page are drawn from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.results._json import select
from gradpivot.results.frontier import Frontier, Point

__all__ = ["COMPARISON_SCHEMA", "Comparison"]

COMPARISON_SCHEMA = "gradpivot.results/1"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Original, reference and methods, side by side.

    Attributes:
        title: A line for the head of the page.
        problem: Name, kind, classes, split hash and set sizes.
        original: The model before unlearning.
        retrained: The reference, if it was trained.
        frontiers: One per method.
        provenance: Versions, machine class, seed, settings, date, command.
    """

    title: str
    problem: Mapping[str, Any]
    original: Point
    retrained: Point | None = None
    frontiers: Sequence[Frontier]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version."""
        names = ("title", "problem", "original", "retrained", "frontiers", "provenance")
        return {"schema": COMPARISON_SCHEMA, **select(self, *names)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """Read back what :meth:`to_dict` wrote.

        Raises:
            GradPivotError: if the schema is another one.
        """
        if values.get("schema") != COMPARISON_SCHEMA:
            raise GradPivotError(
                f"these results have the schema {values.get('schema')!r}; this version reads {COMPARISON_SCHEMA!r}"
            )
        retrained = values["retrained"]
        return cls(
            **{name: values[name] for name in ("title", "problem", "provenance")},
            original=Point.from_dict(values["original"]),
            retrained=Point.from_dict(retrained) if retrained else None,
            frontiers=[Frontier.from_dict(frontier) for frontier in values["frontiers"]],
        )

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read a ``results.json``.

        Raises:
            GradPivotError: if the file is missing, cut short or something else.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise GradPivotError(f"there is no file {path}; run 'gradpivot demo' to make one") from None
        except GradPivotError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GradPivotError(
                f"{path} is not a results file of gradpivot, or is cut short ({error}); run again"
            ) from None
