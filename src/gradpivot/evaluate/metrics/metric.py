"""What a metric is: one description that scores, conditions, tables, pages, JSON and help read. No torch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from gradpivot.errors import GradPivotError

__all__ = ["Metric", "Verdict"]

_READABLE = ("forget", "retain", "test", "unseen", "members", "nonmembers")


class Verdict(NamedTuple):
    """What an attack returns that may be ill-posed: stored as NAME, NAME_accuracy and NAME_determined."""

    value: float
    accuracy: float
    """The attacker's accuracy on its own training points."""
    determined: bool
    """False where that is no better than chance and the value is noise."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that judges a classifier after unlearning.

    Attributes:
        name: The attribute of ``Scores``, the key in JSON and, in any case, the word in conditions.
        meaning: One sentence: what is counted. ``{scope}`` becomes the test data that TA is measured on.
        compute: A pure function whose parameters name what it reads. ``forget``, ``retain``, ``test`` (in TA's scope)
            and ``unseen`` (test samples of the same kind as the forgotten ones) have the arrays ``confidence`` (of the
            true label) and ``correct``; ``members`` and ``nonmembers`` are equally many confidences of retain and test
            samples for an attack.
        symbol: The column's name in tables; the name in capitals if not given.
        label: Two or three words for a chart's title.
        direction: Which way is better for class-wise forgetting.
        to_reference: For other forget sets, nearer to the retrained model's value is better.
        ideal: The value of a perfect result of class-wise forgetting; the retrained model's if None.
        least: The smallest possible value.
        most: The largest possible value.
        unit: ``%`` for fractions, which people read and type in percent; anything else (``nats``) is shown as it is.
        share_of: The set that it is a share of, which gives it a 95 % Wilson interval.
        against: What it is compared with.
        in_standings: Whether H and Δ are taken on it.
        is_attack: Whether "H without MIA" leaves it out.
        on_request: Computed only where a condition asks for it, since it takes a forward pass of its own.
        may_be_undetermined: Whether ``compute`` returns a :class:`Verdict`.
        variant_of: The metric that this is another form of; it steers nothing and console tables leave it out.
    """

    name: str
    meaning: str
    compute: Callable[..., float | Verdict]
    symbol: str = ""
    label: str = ""
    direction: Literal["higher", "lower"] = "higher"
    to_reference: bool = True
    ideal: float | None = None
    least: float = 0.0
    most: float = 1.0
    unit: str = "%"
    share_of: Literal["forget", "retain", "test"] | None = None
    against: str = "the retrained model"
    in_standings: bool = False
    is_attack: bool = False
    on_request: bool = False
    may_be_undetermined: bool = False
    variant_of: str | None = None

    def __post_init__(self) -> None:
        if not (self.name.isidentifier() and self.name.isascii() and self.name == self.name.lower()):
            raise GradPivotError(f"a metric is called {self.name!r}; use lower-case letters, digits and _")
        if unknown := [part for part in self.reads if part not in _READABLE]:
            raise GradPivotError(
                f"the metric {self.name} reads {unknown[0]!r}; the parameters of its compute function may be "
                f"{', '.join(_READABLE)}"
            )
        is_share = (self.least, self.most, self.unit) == (0.0, 1.0, "%")
        if self.in_standings and not (self.is_higher and is_share and not self.on_request):
            raise GradPivotError(
                f"the metric {self.name} cannot take part in H, a volume of shares of which more is better; leave "
                f"in_standings at False, or compute 1 − the value"
            )
        if not self.symbol:
            object.__setattr__(self, "symbol", self.name.upper())

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The sets of predictions that it is computed from."""
        return tuple(inspect.signature(self.compute).parameters)

    @property
    def is_higher(self) -> bool:
        """Whether more is better."""
        return self.direction == "higher"

    @property
    def scale(self) -> float:
        """What a value is multiplied with where people read or type it."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def worst(self) -> float:
        """What a model without finite outputs counts with."""
        return self.least if self.is_higher else self.most

    def measure(self, predictions: Mapping[str, Any]) -> dict[str, float]:
        """The value by the metric's name, with accuracy and determinedness where it has them."""
        found = self.compute(**{part: predictions[part] for part in self.reads})
        if not isinstance(found, Verdict):
            return {self.name: self.checked(float(found))}
        return {
            self.name: self.checked(found.value),
            f"{self.name}_accuracy": found.accuracy,
            f"{self.name}_determined": found.determined,
        }

    def checked(self, value: float) -> float:
        """The value.

        Raises:
            GradPivotError: if it is out of range.
        """
        if not math.isfinite(value) or not self.least <= value <= self.most:
            raise GradPivotError(f"{self.name} is {value!r}, not {self.between()}")
        return value

    def between(self) -> str:
        """Its range as people read it: ``between 50 and 100 %``; ``0 nats or more``."""
        unit, low, high = self.unit and f" {self.unit}", self.scale * self.least, self.scale * self.most
        return f"between {low:g} and {high:g}{unit}" if math.isfinite(high) else f"{low:g}{unit} or more"

    def text(self, value: float | None, digits: int = 2) -> str:
        """A value for a sentence: ``97.31 %``; ``0.42 nats``."""
        if value is None or not math.isfinite(value):
            return "–"
        return f"{self.scale * value:.{digits}f} {self.unit}".rstrip()
