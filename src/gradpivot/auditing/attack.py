"""The description of an attack and what it measures. One file per family in ``attacks/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gradpivot.results import Finding

if TYPE_CHECKING:
    from gradpivot.auditing.subject import Subject

__all__ = ["LEVELS", "Attack", "Measurement", "NotApplicableError", "NotTestedError"]

LEVELS = ("quick", "standard", "full")


class NotTestedError(Exception):
    """Raised by an attack that cannot run on this subject; the message is the reason that the report gives."""


class NotApplicableError(NotTestedError):
    """Raised by an attack without which its question can still be answered."""


class Measurement(NamedTuple):
    """What an attack measured; the fields are those of :class:`gradpivot.results.Finding`."""

    value: float
    n: int
    interval: tuple[float, float] | None = None
    control: float | None = None
    control_is: Literal["retrained", "theory", "original"] = "retrained"
    original: float | None = None
    difference: float | None = None
    error: float | None = None
    noise: float | None = None
    """Largest difference between two retrained models, where several were given; None for the attack's own."""
    note: str = ""
    details: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack on a model that claims to have forgotten.

    Attributes:
        name: Identifier and key in JSON.
        title: Name for people.
        question: ``membership``, ``knowledge`` or ``collateral``.
        meaning: One sentence: what is measured.
        measure: Runs the attack.
        level: The cheapest level that runs it.
        unit: ``%`` for fractions; empty for plain numbers.
        direction: The deviation from a retrained model that is evidence.
        decides: Whether the verdict depends on it.
        noise: Difference between retrained models that is normal; see docs/results/audit.md for the calibration.
        margin: Differences below this count as indistinguishable.
        threat: Who could do this, with what access.
    """

    name: str
    title: str
    question: Literal["membership", "knowledge", "collateral"]
    meaning: str
    measure: Callable[[Subject], Measurement] = field(repr=False)
    level: Literal["quick", "standard", "full"] = "quick"
    unit: str = "%"
    direction: Literal["two-sided", "higher", "lower"] = "two-sided"
    decides: bool = True
    noise: float = 0.0
    margin: float = 0.1
    threat: str = ""

    def run(self, subject: Subject) -> Finding:
        """Run the attack.

        Raises:
            NotTestedError: If it cannot run on this subject.
        """
        measured = self.measure(subject)
        copied = ("name", "title", "question", "meaning", "unit", "direction", "decides", "noise", "margin", "threat")
        found = Finding(**{name: getattr(self, name) for name in copied}, value=measured.value, n=measured.n)
        known = {name: value for name, value in measured._asdict().items() if value is not None}
        known["noise"] = max(self.noise, measured.noise or 0.0)
        return replace(found, **known)
