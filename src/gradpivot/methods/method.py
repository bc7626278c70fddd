"""Base classes of methods: frozen dataclasses whose fields are the hyper-parameters.

Fields become command-line options and round-trip through JSON. This module does not import torch, so that listing the
methods is fast.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.tasks import list_objectives

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["LR_GRID", "Descent", "ForgettingDescent", "Method"]

LR_GRID = tuple(round(1e-4 + (1e-2 - 1e-4) * i / 19, 10) for i in range(20))
"""20 evenly spaced learning rates in [1e-4, 1e-2]: the paper's search space for methods without another knob."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """An unlearning method.

    Importing a subclass that sets :attr:`name` registers it. The class variables below declare its properties;
    :class:`gradpivot.testing.MethodContract` reads them.
    """

    name: ClassVar[str]
    """Name in configurations and on the command line."""
    title: ClassVar[str]
    """Name in tables and legends."""
    knob: ClassVar[str | None] = None
    """The field that traces its frontier."""
    starts_over: ClassVar[bool] = False
    """Whether it discards the given weights. It then needs a model factory or re-initialisable modules."""
    changes_head: ClassVar[bool] = False
    """Whether it changes the number of outputs while it runs, and so has to find the last layer."""
    one_shot: ClassVar[bool] = False
    """Whether it makes a single update: no checkpoints, and possibly no randomness."""
    needs_retain: ClassVar[bool] = True
    """Whether it uses retain data."""
    needs_forget: ClassVar[bool] = True
    """Whether it uses forget data."""
    uses_all_retain: ClassVar[bool] = False
    """Whether an epoch is always a pass over the whole retain set."""
    only_for: ClassVar[str | None] = None
    """The only kind of task it supports, such as ``diffusion``; None for any."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """Settings from the paper, or from the literature where the paper gives none."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The paper's search space, ours for methods it does not have: the Cartesian product of these values."""

    _registry: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            _check_name_is_free(Method._registry.get(cls.name), cls)
            Method._registry[cls.name] = cls

    @staticmethod
    def register(kind: type[Method], path: str) -> type[Method]:
        """Register a class under its import path, so that records and worker processes can find it."""
        kind.name = path
        if "title" not in vars(kind):
            kind.title = kind.__name__
        Method._registry[path] = kind
        return kind

    @staticmethod
    def registered() -> Mapping[str, type[Method]]:
        """All methods imported so far, by name."""
        return types.MappingProxyType(Method._registry)

    @abstractmethod
    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Update ``model`` in place; the Loop has already copied it."""

    def check_installed(self) -> None:  # noqa: B027 - most methods need no extra
        """Check that optional dependencies are installed; called before a sweep starts.

        Raises:
            GradPivotError: If one is missing; names the extra that installs it.
        """

    def gradients(self, split: ForgetSplit) -> float:
        """Number of per-sample gradients in one run, the unit of compute cost."""
        return float(len(split.forget_indices) + len(split.retain_indices))

    @classmethod
    def protocol(cls, name: str, **settings: Any) -> Self:
        """Create the method with the settings of a protocol: ``paper`` or ``clean`` (our defaults).

        Args:
            name: ``paper`` or ``clean``.
            **settings: Fields to override, such as ``gamma=0.3``.
        """
        if name not in ("paper", "clean"):
            raise GradPivotError(f"unknown protocol {name!r}; choose paper or clean")
        return cls.from_dict({**(cls.paper if name == "paper" else {}), **settings})

    @classmethod
    def space(cls, protocol: str = "paper", **settings: Any) -> list[Self]:
        """One method per point of the paper's search space."""
        names = list(cls.paper_space)
        return [
            cls.protocol(protocol, **settings, **dict(zip(names, values, strict=True)))
            for values in itertools.product(*cls.paper_space.values())
        ]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Create the method from a mapping of fields.

        Raises:
            GradPivotError: For an unknown field (with a suggestion) or a value out of range.
        """
        fields = {f.name for f in dataclasses.fields(cls)}
        for name in settings:
            if name not in fields:
                hint = did_you_mean(name, fields, f"; it has {', '.join(sorted(fields))}")
                raise GradPivotError(f"{cls.title} has no setting {name!r}{hint}")
        return cls(**settings)

    @property
    def is_dialled(self) -> bool:
        """Whether the dial steers the run to a degree of forgetting (:mod:`gradpivot.dial`)."""
        return False

    @property
    def active_knob(self) -> str | None:
        """The field that traces the frontier under these settings."""
        return self.knob

    def restarts(self, kind: str, task: Task) -> bool:
        """Whether a run on a split of this kind is a restart (:mod:`gradpivot.dial.restart`)."""
        return False

    def uses_validation(self, kind: str, task: Task) -> bool:
        """Whether it uses validation data on a split of this kind. Final scores never use them."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The full configuration as JSON-compatible data, including the method's name."""
        return {"method": self.name, **dataclasses.asdict(self)}

    @property
    def label(self) -> str:
        """Display name: the method, its knob and all non-default fields."""
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in dataclasses.fields(self)
            if f.name == self.active_knob or getattr(self, f.name) != f.default
        ]
        return f"{self.title}({', '.join(changed)})"

    def _coerce_scalars(self) -> None:
        """Convert NumPy and torch scalars to Python numbers, for JSON and equality."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if hasattr(value, "item"):
                value = value.item()
            # 1 and 1.0 must hash to the same run.
            if type(value) is int and str(field.type).startswith("float"):
                value = float(value)
            object.__setattr__(self, field.name, value)

    def _check(
        self,
        field: str,
        *,
        gt: float = -math.inf,
        ge: float = -math.inf,
        lt: float = math.inf,
        le: float = math.inf,
        integer: bool = False,
    ) -> None:
        """Raise unless the field is a finite number within the bounds."""
        value = getattr(self, field)
        numeric = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
        if numeric and math.isfinite(value) and value > gt and ge <= value < lt and value <= le:
            return
        bounds = [f"> {gt:g}" if gt > -math.inf else f"≥ {ge:g}"]
        bounds += [f"< {lt:g}"] if lt < math.inf else []
        bounds += [f"≤ {le:g}"] if le < math.inf else []
        kind = "an integer" if integer else "a number"
        raise GradPivotError(f"{self.title}: {field} is {value!r}; it must be {kind} {' and '.join(bounds)}")

    def _check_choices(self) -> None:
        """Raise unless every field annotated as a Literal has one of its values."""
        for field, allowed in _choices(type(self)).items():
            for choices in allowed:
                value = getattr(self, field)
                if value not in choices:
                    raise GradPivotError(
                        f"{self.title}: {field} is {value!r}; choose one of {', '.join(map(str, choices))}"
                    )


@cache
def _choices(method: type[Method]) -> dict[str, list[tuple[Any, ...]]]:
    """The values that each field may have; evaluating annotations takes milliseconds, and sweeps make thousands."""
    return {field: _literals(annotation) for field, annotation in typing.get_type_hints(method).items()}


def _literals(annotation: Any) -> list[tuple[Any, ...]]:
    """The values that a ``Literal`` or ``Literal | None`` annotation allows; empty for any other."""
    if typing.get_origin(annotation) is Literal:
        return [typing.get_args(annotation)]
    # get_type_hints turns "Literal[…] | None" into typing.Union.
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if is_union else ()
    optional = [part for part in parts if typing.get_origin(part) is Literal]
    return [(*typing.get_args(part), None) for part in optional]


def _check_name_is_free(known: type[Method] | None, new: type[Method]) -> None:
    """Raise if another class has the name; reloading the same class is fine."""
    paths = [f"{c.__module__}.{c.__qualname__}" for c in (known, new) if c is not None]
    if len(set(paths)) > 1:
        raise GradPivotError(f"{' and '.join(paths)} are both named {new.name!r}; rename one of them")


@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """A method that trains with mini-batches.

    Attributes:
        lr: Learning rate.
        epochs: Passes over the forget set.
        iterations: Total number of steps; overrides epochs.
        batch_size: Batch size; if unset, the power of two that gives about 16 steps per epoch.
        retain_batch_size: Retain samples per step; if unset, as many as forget samples.
        augment: Image augmentation: none, crop (shifts of up to 4 pixels) or crop_flip; if unset, the problem's own.
        optimizer: Optimiser.
        momentum: SGD momentum.
        weight_decay: Weight decay.
        schedule: Learning-rate schedule. one_cycle warms up over the first fifth of the run, then decays to zero.
        batchnorm: BatchNorm statistics: frozen keeps them, train updates them, recalibrate recomputes them on retain
            data after the run.
        max_norm: Maximum gradient norm; None disables clipping.
    """

    lr: float = 1e-3
    epochs: int = 5
    iterations: int | None = None
    batch_size: int | None = None
    retain_batch_size: int | None = None
    augment: Literal["none", "crop", "crop_flip"] | None = None
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine", "one_cycle"] = "constant"
    batchnorm: Literal["frozen", "train", "recalibrate"] = "frozen"
    max_norm: float | None = 1.0

    # Not in the paper; common settings in the unlearning literature.
    paper: ClassVar[Mapping[str, Any]] = {
        "max_norm": None,
        "batchnorm": "train",
        "weight_decay": 5e-4,
        "batch_size": 256,
    }

    def __post_init__(self) -> None:
        self._coerce_scalars()
        self._check("lr", gt=0)
        self._check("momentum", ge=0, lt=1)
        self._check("weight_decay", ge=0)
        for name in ("epochs", "iterations", "batch_size", "retain_batch_size"):
            if name == "epochs" or getattr(self, name) is not None:
                self._check(name, ge=1, integer=True)
        if self.max_norm is not None:
            self._check("max_norm", gt=0)
        self._check_choices()

    def policy(self, kind: str) -> Literal["frozen", "train", "recalibrate"]:
        """The BatchNorm policy on a split of this kind."""
        return self.batchnorm

    def gradients(self, split: ForgetSplit) -> float:
        """One gradient per sample of every batch."""
        from gradpivot.loop import paired_plan, plain_plan

        n_forget, n_retain = len(split.forget_indices), len(split.retain_indices)
        if self.uses_all_retain:
            plan, samples = plain_plan(split.retain_indices, self, 0), n_retain
        else:
            plan = paired_plan(split, self, 0)
            size = self.retain_batch_size
            retained = n_forget if size is None else plan.per_epoch * min(size, n_retain)
            samples = self.needs_forget * n_forget + self.needs_retain * retained
        return plan.total / plan.per_epoch * samples


@dataclass(frozen=True, kw_only=True)
class ForgettingDescent(Descent):
    """A descent with a forgetting objective.

    Attributes:
        objective: Forgetting loss, such as unlikelihood (bounded below) or negative_ce (the paper's, unbounded).
        saliency: Fraction of the weights to update, the most salient for the forget set (SalUn's mask); if unset, all.
    """

    objective: str = "unlikelihood"
    saliency: float | None = None

    extra_objectives: ClassVar[tuple[str, ...]] = ()
    """Objective names that only this method accepts."""
    paper: ClassVar[Mapping[str, Any]] = {**Descent.paper, "objective": "negative_ce"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.saliency is not None:
            self._check("saliency", gt=0, le=1)
        known = [*self.extra_objectives, *list_objectives()]
        if self.objective not in known:
            raise GradPivotError(f"{self.title}: objective is {self.objective!r}; choose one of {', '.join(known)}")
