"""Comparisons of several methods on one problem: the content of ``results.json``, tables, figures and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.results._json import select
from gradpivot.results.frontier import Frontier, Point, compared_metrics, determined_metrics
from gradpivot.runtime import parse_json

__all__ = ["COMPARISON_SCHEMA", "Comparison"]

COMPARISON_SCHEMA = "gradpivot.results/1"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The original model, the retrained model and the frontiers of the methods.

    Attributes:
        title: Title of the page.
        problem: Name, kind, classes, split hash and set sizes.
        original: The model before unlearning.
        retrained: The retrained model, if there is one.
        frontiers: One per method.
        provenance: Versions, machine class, seed, settings, date, command.
    """

    title: str
    problem: Mapping[str, Any]
    original: Point
    retrained: Point | None = None
    frontiers: Sequence[Frontier]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of split; ``class`` if the comparison does not name one."""
        first = self.frontiers[0].kind if self.frontiers else "class"
        return str(self.problem.get("kind", first))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of H and Δ that are determined for the retrained model."""
        retrained = self.retrained.scores if self.retrained else None
        return determined_metrics(self._every_metric, retrained, *(f.reference for f in self.frontiers))

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The metrics that H and Δ leave out because they are undetermined."""
        return tuple(name for name in self._every_metric if name not in self.metrics)

    @property
    def _every_metric(self) -> tuple[str, ...]:
        return compared_metrics(self.original.scores, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with its schema version."""
        names = ("title", "problem", "original", "retrained", "frontiers", "provenance")
        return {"schema": COMPARISON_SCHEMA, **select(self, *names)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """Inverse of :meth:`to_dict`.

        Raises:
            GradPivotError: If the schema is unknown.
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
            GradPivotError: If the file is missing, truncated or not a results file.
        """
        try:
            return cls.from_dict(parse_json(Path(path).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise GradPivotError(f"there is no file {path}; run 'gradpivot demo' to create one") from None
        except GradPivotError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GradPivotError(
                f"{path} is not a results file of gradpivot, or is truncated ({error}); run again"
            ) from None
