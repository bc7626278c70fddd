"""The description of a metric, read by scores, conditions, tables, pages, JSON and help. No torch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from gradpivot.errors import GradPivotError

__all__ = ["Kind", "Metric", "Verdict", "WithIdeal"]

_COSTLY = ("relearned", "recovered", "references")
_INPUTS = ("forget", "retain", "test", "unseen", "members", "nonmembers", *_COSTLY)


Kind = Literal["class", "records"]
"""What a split forgets: whole classes, or records chosen at random, by index or by predicate."""


class Verdict(NamedTuple):
    """Result of an attack that may be ill-posed, stored as NAME, NAME_accuracy and NAME_determined."""

    value: float
    accuracy: float
    """The attack's training accuracy."""
    determined: bool
    """False if that is near chance, so that the value is noise."""


class WithIdeal(NamedTuple):
    """A value with its ideal, measured on the same model; stored as NAME and NAME_ideal."""

    value: float
    ideal: float


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of an unlearned classifier.

    Attributes:
        name: Attribute of ``Scores``, key in JSON, and (case-insensitive) name in conditions.
        meaning: One-sentence definition. ``{scope}`` is replaced by the test data that TA is measured on.
        compute: Pure function whose parameters name its inputs. ``forget``, ``retain``, ``test`` (in TA's scope) and
            ``unseen`` (test samples comparable to the forget set) have the arrays ``confidence`` (of the true label)
            and ``correct``; ``members`` and ``nonmembers`` are equally many confidences of retain and test samples,
            for attacks. For metrics on request also ``relearned``, the correctness of a copy that relearns from a few
            forget samples, on the others, averaged over its steps
            (:func:`gradpivot.evaluate.relearned_correctness`), ``recovered``, that of a copy fine-tuned on retained
            data (:func:`gradpivot.evaluate.recovered_correctness`), and ``references``, the
            :class:`gradpivot.evaluate.ReferencePredictions` of models that never saw the forget set.
        symbol: Column heading in tables; the name in capitals by default.
        label: Two or three words for chart titles.
        direction: The better direction for class-wise forgetting.
        to_reference: Whether, for other forget sets, closer to the retrained model is better.
        ideal: The perfect value for class-wise forgetting; the retrained model's if None.
        least: Smallest possible value.
        most: Largest possible value.
        unit: ``%`` for fractions, which are shown and typed in percent; other units (``nats``) are not scaled.
        share_of: The set that it is a fraction of, for a 95 % Wilson interval.
        against: What it is compared with.
        in_standings: Whether H and Δ use it.
        is_attack: Whether "H without MIA" leaves it out.
        on_request: Computed only if a condition names it, because it takes an extra forward pass, or training; and for
            forgotten records if it is a ``headline`` for them.
        headline: What a split must forget for this metric to be on the console and in tables, H and Δ; anything by
            default. Otherwise it is still computed, unless ``on_request``, and in JSON and CSV.
        two_sided: Whether both directions from ``ideal`` are equally bad. Conditions bound the larger of the value and
            its mirror image: AUC<=55 means 45 to 55 %.
        may_be_undetermined: Whether ``compute`` returns a :class:`Verdict`.
        variant_of: The metric this is a variant of. Variants are not allowed in conditions or shown on the console.
    """

    name: str
    meaning: str
    compute: Callable[..., float | Verdict | WithIdeal]
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
    headline: Kind | None = None
    two_sided: bool = False
    may_be_undetermined: bool = False
    variant_of: str | None = None

    def __post_init__(self) -> None:
        if not (self.name.isidentifier() and self.name.isascii() and self.name == self.name.lower()):
            raise GradPivotError(f"the metric name is {self.name!r}; use lower-case letters, digits and _")
        if unknown := [part for part in self.reads if part not in _INPUTS]:
            raise GradPivotError(
                f"the compute function of metric {self.name!r} has a parameter {unknown[0]!r}; the parameters may be "
                f"{', '.join(_INPUTS)}"
            )
        if not self.on_request and (costly := [part for part in self.reads if part in _COSTLY]):
            raise GradPivotError(f"metric {self.name!r} reads {costly[0]!r}, which takes more; set on_request=True")
        is_share = (self.least, self.most, self.unit) == (0.0, 1.0, "%")
        if self.in_standings and not (self.is_higher and is_share and not self.on_request):
            raise GradPivotError(
                f"metric {self.name!r} cannot be used in H, which needs fractions where higher is better; set "
                f"in_standings=False, or compute 1 − the value"
            )
        if self.two_sided and self.ideal is None:
            raise GradPivotError(f"metric {self.name!r} is two-sided, but has no ideal; set ideal, such as 0.5")
        if not self.symbol:
            object.__setattr__(self, "symbol", self.name.upper())

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The inputs of ``compute``."""
        return tuple(inspect.signature(self.compute).parameters)

    @property
    def is_higher(self) -> bool:
        """Whether higher is better."""
        return self.direction == "higher"

    @property
    def scale(self) -> float:
        """Factor from stored to displayed values."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def is_for_records_only(self) -> bool:
        """Whether it is computed in every evaluation of forgotten records, but on request for classes."""
        return self.on_request and self.headline == "records"

    @property
    def low(self) -> float:
        """The smallest bound that a condition can have: the ideal of a two-sided metric."""
        return self.ideal if self.two_sided and self.ideal is not None else self.least

    def folded(self, value: float) -> float:
        """The value as conditions see it: mirrored to the upper side of the ideal if the metric is two-sided."""
        return self.low + abs(value - self.low) if self.two_sided else value

    @property
    def worst(self) -> float:
        """The value assigned to a diverged run."""
        return self.least if self.is_higher else self.most

    def measure(self, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Compute the metric: its value by name, with the other parts of a :class:`Verdict` or :class:`WithIdeal`."""
        found = self.compute(**{part: predictions[part] for part in self.reads})
        if isinstance(found, WithIdeal):
            return {self.name: self.checked(found.value), f"{self.name}_ideal": self.checked(found.ideal)}
        if not isinstance(found, Verdict):
            return {self.name: self.checked(float(found))}
        return {
            self.name: self.checked(found.value),
            f"{self.name}_accuracy": found.accuracy,
            f"{self.name}_determined": found.determined,
        }

    def checked(self, value: float) -> float:
        """Return the value if it is in range.

        Raises:
            GradPivotError: If it is not.
        """
        if not math.isfinite(value) or not self.least <= value <= self.most:
            raise GradPivotError(f"{self.name} is {value!r}; it must be {self._range(self.least)}")
        return value

    def range_text(self) -> str:
        """The range of conditions for display: ``between 50 and 100 %``; ``0 nats or more``."""
        return self._range(self.low)

    def _range(self, least: float) -> str:
        unit, low, high = self.unit and f" {self.unit}", self.scale * least, self.scale * self.most
        return f"between {low:g} and {high:g}{unit}" if math.isfinite(high) else f"{low:g}{unit} or more"

    def text(self, value: float | None, digits: int = 2) -> str:
        """Format a value with its unit: ``97.31 %``; ``0.42 nats``."""
        if value is None or not math.isfinite(value):
            return "–"
        return f"{self.scale * value:.{digits}f} {self.unit}".rstrip()
