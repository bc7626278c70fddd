"""What a method is: a frozen dataclass whose fields are its hyper-parameters, and an explicit loop.

Fields become command-line options, the configuration round-trips through JSON, and defaults are the safe choices.
No torch is imported here, so that listing methods stays instant.
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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.tasks import list_objectives

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["EVEN_RATES", "Descent", "ForgettingDescent", "Method"]

EVEN_RATES = tuple(round(1e-4 + (1e-2 - 1e-4) * i / 19, 10) for i in range(20))
"""20 evenly spaced learning rates in [1e-4, 1e-2]: the paper's space of every method with no other knob."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to unlearn.

    A subclass that sets :attr:`name` is registered by being imported. It says what is special about it in the class
    variables below, which :class:`gradpivot.testing.MethodContract` reads.
    """

    name: ClassVar[str]
    """What it is called in configurations and on the command line."""
    title: ClassVar[str]
    """What tables and legends call it."""
    knob: ClassVar[str | None] = None
    """The field that walks its frontier."""
    starts_over: ClassVar[bool] = False
    """Whether it discards the given weights (and needs a model factory or re-initialisable modules)."""
    changes_head: ClassVar[bool] = False
    """Whether it gives the model other outputs while it runs (and so has to find its last layer)."""
    one_shot: ClassVar[bool] = False
    """Whether it is a single update: no checkpoints, and the seed may decide nothing."""
    needs_retain: ClassVar[bool] = True
    """Whether it looks at retain data."""
    needs_forget: ClassVar[bool] = True
    """Whether it looks at forget data."""
    uses_all_retain: ClassVar[bool] = False
    """Whether an epoch is a pass over all of the retain set, whatever the settings."""
    only_for: ClassVar[str | None] = None
    """The kind of task it is defined for (``diffusion``); None if its losses are any task's, or classification's."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """Fields as printed, or as the literature has them where the paper is silent."""
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The paper's search space: the product of these values."""

    _registry: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            _refuse_second(Method._registry.get(cls.name), cls)
            Method._registry[cls.name] = cls

    @staticmethod
    def register(kind: type[Method], path: str) -> type[Method]:
        """Call a class by its import path: records keep that name, and workers find the class by it."""
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
        """Change ``model`` in place so that it forgets; the Loop has made the copy."""

    def check_installed(self) -> None:  # noqa: B027 - most methods need nothing more
        """Raise if something it needs is not installed; a sweep asks before it begins.

        Raises:
            GradPivotError: with the extra that installs it.
        """

    def gradients(self, split: ForgetSplit) -> float:
        """How many gradients of a sample one run takes, by its settings: what costs are counted in."""
        return float(len(split.forget_indices) + len(split.retain_indices))

    @classmethod
    def protocol(cls, name: str, **settings: Any) -> Self:
        """The method under a named protocol: ``paper`` (as printed) or ``clean`` (our safe defaults).

        Args:
            name: ``paper`` or ``clean``.
            **settings: Fields to set on top, such as ``gamma=0.3``.
        """
        if name not in ("paper", "clean"):
            raise GradPivotError(f"there is no protocol {name!r}; choose paper or clean")
        return cls.from_dict({**(cls.paper if name == "paper" else {}), **settings})

    @classmethod
    def space(cls, protocol: str = "paper", **settings: Any) -> list[Self]:
        """The paper's search space under a protocol: one method per combination of values."""
        names = list(cls.paper_space)
        return [
            cls.protocol(protocol, **settings, **dict(zip(names, values, strict=True)))
            for values in itertools.product(*cls.paper_space.values())
        ]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping of fields, with a hint for a name that is not one.

        Raises:
            GradPivotError: for an unknown field or a value outside its range.
        """
        fields = {f.name for f in dataclasses.fields(cls)}
        for name in settings:
            if name not in fields:
                hint = did_you_mean(name, fields, f"; it has {', '.join(sorted(fields))}")
                raise GradPivotError(f"{cls.title} has no setting {name!r}{hint}")
        return cls(**settings)

    @property
    def is_dialled(self) -> bool:
        """Whether a run is steered to a degree of forgetting (:mod:`gradpivot.dial`)."""
        return False

    @property
    def walked(self) -> str | None:
        """The field that walks the frontier of a method with these settings."""
        return self.knob

    def looks_at_unseen(self, kind: str, task: Task) -> bool:
        """Whether it steers by validation data, on a split of that kind; final scores are never on them."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The full configuration, JSON-able, with the method's name."""
        return {"method": self.name, **dataclasses.asdict(self)}

    @property
    def label(self) -> str:
        """The run's name: the method, its knob and the fields that differ from its defaults."""
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in dataclasses.fields(self)
            if f.name == self.walked or getattr(self, f.name) != f.default
        ]
        return f"{self.title}({', '.join(changed)})"

    def _take_plain_numbers(self) -> None:
        """Turn NumPy and torch scalars into Python's, which JSON and comparison know."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if hasattr(value, "item"):
                value = value.item()
            # 1 and 1.0 are one setting, and must be one run.
            if type(value) is int and str(field.type).startswith("float"):
                value = float(value)
            object.__setattr__(self, field.name, value)

    def _check(
        self,
        field: str,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        below: float = math.inf,
        most: float = math.inf,
        whole: bool = False,
    ) -> None:
        """Raise unless the field is a finite number in the bounds > ≥ < ≤ that are given and, if asked, whole."""
        value = getattr(self, field)
        numeric = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if numeric and math.isfinite(value) and value > above and least <= value < below and value <= most:
            return
        bounds = [f"> {above:g}" if above > -math.inf else f"≥ {least:g}"]
        bounds += [f"< {below:g}"] if below < math.inf else []
        bounds += [f"≤ {most:g}"] if most < math.inf else []
        kind = "a whole number" if whole else "a number"
        raise GradPivotError(f"{self.title}: {field} is {value!r}; it must be {kind} {' and '.join(bounds)}")

    def _check_choices(self) -> None:
        """Raise unless every field annotated as a Literal has one of its values."""
        for field, annotation in typing.get_type_hints(type(self)).items():
            for choices in _literals(annotation):
                value = getattr(self, field)
                if value not in choices:
                    raise GradPivotError(
                        f"{self.title}: {field} is {value!r}; choose one of {', '.join(map(str, choices))}"
                    )


def _literals(annotation: Any) -> list[tuple[Any, ...]]:
    """The values of an annotation that is a Literal, with None added for one that may also be None."""
    if typing.get_origin(annotation) is Literal:
        return [typing.get_args(annotation)]
    # get_type_hints turns "Literal[…] | None" into typing's own Union.
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if is_union else ()
    optional = [part for part in parts if typing.get_origin(part) is Literal]
    return [(*typing.get_args(part), None) for part in optional]


def _refuse_second(known: type[Method] | None, new: type[Method]) -> None:
    """Raise if another class has the name; the same one may be imported again, as reloading does."""
    homes = [f"{c.__module__}.{c.__qualname__}" for c in (known, new) if c is not None]
    if len(set(homes)) > 1:
        raise GradPivotError(f"{' and '.join(homes)} are both called {new.name!r}; give one of them another name")


@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """A method that descends by mini-batches.

    Attributes:
        lr: Learning rate λ.
        epochs: Passes over the forget set (over the retain set for Retrain and ℓ1-sparse).
        iterations: Steps in all, in the place of ``epochs``: the last pass may end early. None for whole passes.
        batch_size: Samples a batch; None takes a power of two that gives about 16 steps an epoch.
        retain_batch_size: Retain samples beside each forget batch; None takes as many as the forget batch has.
        augment: Random changes of images: ``crop`` (shifts by up to 4 pixels), ``crop_flip`` or ``none``; None takes
            what suits the problem, and none if it says nothing.
        optimizer: ``sgd``, ``adam`` or ``adamw``.
        momentum: Of SGD.
        weight_decay: Of every optimiser.
        schedule: Learning rate over the run: ``constant``, ``cosine`` down to zero, or ``one_cycle``: up in the first
            fifth, then down to zero.
        batchnorm: ``frozen`` keeps running statistics, ``train`` updates them, ``recalibrate`` recomputes them on
            retain data at the end.
        max_norm: Limit on the length of the gradient; None for no limit.
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

    # What the literature runs its unlearning with; the paper does not print it.
    paper: ClassVar[Mapping[str, Any]] = {
        "max_norm": None,
        "batchnorm": "train",
        "weight_decay": 5e-4,
        "batch_size": 256,
    }

    def __post_init__(self) -> None:
        self._take_plain_numbers()
        self._check("lr", above=0)
        self._check("momentum", least=0, below=1)
        self._check("weight_decay", least=0)
        for name in ("epochs", "iterations", "batch_size", "retain_batch_size"):
            if name == "epochs" or getattr(self, name) is not None:
                self._check(name, least=1, whole=True)
        if self.max_norm is not None:
            self._check("max_norm", above=0)
        self._check_choices()

    def gradients(self, split: ForgetSplit) -> float:
        """Every sample of every batch once."""
        from gradpivot.loop import paired_plan, plain_plan

        n_forget, n_retain = len(split.forget_indices), len(split.retain_indices)
        if self.uses_all_retain:
            plan, samples = plain_plan(split.retain_indices, self, 0), n_retain
        else:
            plan = paired_plan(split, self, 0)
            beside = self.retain_batch_size
            kept = n_forget if beside is None else plan.per_epoch * min(beside, n_retain)
            samples = self.needs_forget * n_forget + self.needs_retain * kept
        return plan.total / plan.per_epoch * samples


@dataclass(frozen=True, kw_only=True)
class ForgettingDescent(Descent):
    """A descent that has a forgetting objective.

    Attributes:
        objective: The forgetting loss: ``unlikelihood`` −log(1−p_y), which has a floor, ``negative_ce`` −CE, the
            paper's, which has none, ``random_label``, CE to labels drawn anew at each step, ``uniform``, KL to the
            uniform distribution, ``npo``, 2 log(1+p_y), or ``hinge``, −CE that stops at the loss of knowing nothing.
        saliency: Share of the weights that may change, the most salient for the forget set (SalUn's mask); None for
            all.
    """

    objective: str = "unlikelihood"
    saliency: float | None = None

    more_objectives: ClassVar[tuple[str, ...]] = ()
    """Names beside the objectives' own that a method knows what to do with."""
    paper: ClassVar[Mapping[str, Any]] = {**Descent.paper, "objective": "negative_ce"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.saliency is not None:
            self._check("saliency", above=0, most=1)
        known = [*self.more_objectives, *list_objectives()]
        if self.objective not in known:
            raise GradPivotError(f"{self.title}: objective is {self.objective!r}; choose one of {', '.join(known)}")
