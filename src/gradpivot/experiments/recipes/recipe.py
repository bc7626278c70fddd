"""Recipes: which methods are compared on which problem, over which settings. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.methods import Method

__all__ = ["ForgetSpec", "Recipe", "SeriesSpec", "filled", "numbers_in", "repeated"]

RECIPE_SCHEMA = "gradpivot.recipe/1"
_MAX_CLASSES = 100_000
"""Anything larger is a typo."""
_FORM = "write 3, or 3,5, or 0-4"
MAX_RUNS = 1_000_000
"""Runs of a sweep, with originals and references: all of them are described in memory."""


@dataclass(frozen=True, kw_only=True)
class ForgetSpec:
    """What to forget: each of several classes in turn, or a random fraction of the training data."""

    classes: tuple[int, ...] = ()
    fraction: float | None = None

    def __post_init__(self) -> None:
        if bool(self.classes) == (self.fraction is not None):
            raise GradPivotError("forget needs either classes (3, or 3,5, or 0-9) or a fraction (0.1)")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise GradPivotError(f"the fraction to forget is {self.fraction}; it must be between 0 and 1")

    @property
    def targets(self) -> list[dict[str, Any]]:
        """One split description per forget set."""
        if self.fraction is not None:
            return [{"kind": "random", "fraction": self.fraction}]
        return [{"kind": "class", "classes": [number]} for number in self.classes]


@dataclass(frozen=True, kw_only=True)
class SeriesSpec:
    """One method over its search space, in one protocol.

    Attributes:
        name: Name in tables.
        protocol: The protocol it belongs to.
        methods: One per combination of settings.
    """

    name: str
    protocol: str
    methods: tuple[Method, ...]

    @property
    def method(self) -> str:
        """The method's registered name."""
        return self.methods[0].name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A validated recipe.

    Attributes:
        name: File name without its suffix.
        title: Title in tables and pages.
        about: Description.
        problem: Name of a problem, or ``module:function``.
        forget: Forget sets.
        seeds: Number of seeds, starting at 0.
        series: Every method over its space, by protocol.
        reference: ``retrain``, or ``none`` if retraining is too expensive.
    """

    name: str
    title: str
    about: str
    problem: str
    forget: tuple[ForgetSpec, ...]
    seeds: int
    series: tuple[SeriesSpec, ...]
    reference: str = "retrain"

    def __post_init__(self) -> None:
        if self.runs_with_references > MAX_RUNS:
            raise GradPivotError(
                f"the recipe has {self.runs_with_references:,} runs; at most {MAX_RUNS:,} fit a store: use fewer "
                f"seeds, classes or settings"
            )
        for target in repeated(str(target) for forgetting in self.forget for target in forgetting.targets):
            raise GradPivotError(f"forget has {target} twice; remove one")
        for series in self.series:
            for method in repeated(series.methods):
                raise GradPivotError(f"protocol {series.protocol}, {series.name} has {method.label} twice; remove one")

    @property
    def protocols(self) -> list[str]:
        """The protocols, in the order of the file."""
        return list(dict.fromkeys(series.protocol for series in self.series))

    @property
    def runs(self) -> int:
        """Number of runs, without originals and references."""
        return self._sets * sum(len(series.methods) for series in self.series)

    @property
    def runs_with_references(self) -> int:
        """Number of runs of a sweep: also an original and a reference per forget set and seed."""
        return self.runs + self._sets * (2 if self.reference == "retrain" else 1)

    @property
    def _sets(self) -> int:
        return self.seeds * sum(len(forgetting.targets) for forgetting in self.forget)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with every setting spelled out."""
        return {
            "schema": RECIPE_SCHEMA,
            **{name: getattr(self, name) for name in ("name", "title", "about", "problem")},
            "forget": [dataclasses.asdict(forgetting) for forgetting in self.forget],
            "seeds": self.seeds,
            "reference": self.reference,
            "runs": self.runs,
            "series": [
                {
                    "name": series.name,
                    "protocol": series.protocol,
                    "methods": [method.to_dict() for method in series.methods],
                }
                for series in self.series
            ],
        }

    def only(
        self,
        *,
        methods: Sequence[str] | None = None,
        without: Sequence[str] = (),
        protocols: Sequence[str] | None = None,
        forget: Sequence[ForgetSpec] | None = None,
        seeds: int | None = None,
    ) -> Recipe:
        """Restrict the recipe to some methods (by series or method name), protocols, forget sets or seeds.

        Raises:
            GradPivotError: For a name that is not in the recipe; the message lists the known names.
        """
        chosen = self.series
        if protocols is not None:
            _check_known("protocol", protocols, self.protocols)
            chosen = tuple(s for s in chosen if s.protocol in protocols)
        if methods is not None:
            chosen = tuple(s for s in chosen if s in self._named(methods))
        unwanted = self._named(without)
        chosen = tuple(s for s in chosen if s not in unwanted)
        if not chosen:
            raise GradPivotError(f"no runs of the recipe {self.name} are left; exclude fewer methods or protocols")
        if seeds is not None and seeds < 1:
            raise GradPivotError(f"--seeds is {seeds}; give 1 or more")
        return replace(
            self,
            series=chosen,
            forget=tuple(forget) if forget else self.forget,
            seeds=self.seeds if seeds is None else seeds,
        )

    def suited(self, settings: Mapping[str, Any]) -> Recipe:
        """Fill settings that the recipe leaves unset (None), such as the batch size, with the problem's."""
        series = tuple(
            replace(one, methods=tuple(filled(method, settings) for method in one.methods)) for one in self.series
        )
        return replace(self, series=series)

    def _named(self, names: Sequence[str]) -> list[SeriesSpec]:
        """The series with these series or method names, case-insensitive."""
        wanted = [name.casefold() for name in names]
        _check_known("method", wanted, [n.casefold() for s in self.series for n in (s.method, s.name)])
        return [s for s in self.series if {s.method.casefold(), s.name.casefold()} & set(wanted)]


def filled(method: Method, settings: Mapping[str, Any]) -> Method:
    """The method with its unset (None) settings filled in."""
    missing = {name: value for name, value in settings.items() if getattr(method, name, ...) is None}
    return replace(method, **missing)


def numbers_in(text: Any) -> tuple[int, ...]:
    """Parse ``3``, ``3,5`` or ``0-4``.

    Raises:
        GradPivotError: For any other text.
    """
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = ",".join(map(str, text))
    found: list[int] = []
    for part in str(text).split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise GradPivotError(f"cannot read the classes {_shown(text)}; {_FORM}") from None
        if high < low:
            raise GradPivotError(f"the range {_shown(part.strip())} goes down; {_FORM}")
        if high - low >= _MAX_CLASSES - len(found):
            raise GradPivotError(f"{_shown(text)} has more than {_MAX_CLASSES:,} classes; {_FORM}")
        found += range(low, high + 1)
    return tuple(dict.fromkeys(found))


def _shown(text: Any) -> str:
    """The text in an error message, shortened."""
    return repr(text) if len(str(text)) <= 60 else f"{str(text)[:57]!r} …"


def repeated(items: Iterable[Any]) -> Iterator[Any]:
    """The items that equal an earlier one."""
    seen = set()
    for item in items:
        if item in seen:
            yield item
        seen.add(item)


def _check_known(what: str, wanted: Iterable[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, known)
            raise GradPivotError(f"the recipe has no {what} {name!r}{hint} It has {', '.join(dict.fromkeys(known))}")
