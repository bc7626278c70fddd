"""Recipes: which methods are compared on which problem, over which settings, as files people can read and write.

A recipe is YAML. A plain value is a fixed setting; a list, or a range, is searched; the product of what is searched
is the method's space::

    schema: gradpivot.recipe/1
    title: Two methods on my data
    problem: my_module:my_problem
    forget: [{classes: 0-9}, {fraction: 0.1}]
    seeds: 3
    protocols:
      clean:
        settings: {batch_size: 32}
        series:
          CUP: {method: cup, lr: [1e-4, 1e-3], gamma: {from: 0.1, to: 0.9, count: 9}}
          GA:  {method: ga, lr: {from: 1e-4, to: 1e-2, count: 20, scale: log}}

``extends: NAME`` takes everything from another recipe and replaces what is given anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from gradpivot.errors import GradPivotError
from gradpivot.methods import list_methods, method_class
from gradpivot.methods.method import Method

__all__ = [
    "Forgetting",
    "Recipe",
    "Series",
    "filled",
    "list_recipes",
    "load_recipe",
    "numbers_in",
    "read_recipe_text",
]

SCHEMA = "gradpivot.recipe/1"
_KEYS = ("schema", "title", "about", "extends", "problem", "forget", "seeds", "reference", "protocols")
_REFERENCES = ("retrain", "none")
_PROTOCOL_KEYS = ("about", "base", "settings", "series")
_RANGE_KEYS = ("from", "to", "count", "scale")
MOST_SETTINGS = 100_000
"""More runs a series than this is a slip of the pen, not a search space."""


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """What is forgotten: each of some classes on its own, or a random share of the training data."""

    classes: tuple[int, ...] = ()
    fraction: float | None = None

    def __post_init__(self) -> None:
        if bool(self.classes) == (self.fraction is not None):
            raise GradPivotError("say what to forget: either classes (3, or 3,5, or 0-9) or a fraction (0.1)")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise GradPivotError(f"the fraction to forget is {self.fraction}; it must lie between 0 and 1")

    @property
    def targets(self) -> list[dict[str, Any]]:
        """One description of a split per thing that is forgotten."""
        if self.fraction is not None:
            return [{"kind": "random", "fraction": self.fraction}]
        return [{"kind": "class", "classes": [number]} for number in self.classes]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One method over its space, in one protocol.

    Attributes:
        name: What tables call it.
        protocol: The protocol it belongs to.
        methods: One per combination of its settings.
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
        name: The file's name without its ending.
        title: A line for tables and pages.
        about: What it is for.
        problem: A problem's name, or ``module:function``.
        forget: What is forgotten, in turn.
        seeds: How many seeds, from 0 on.
        series: Every method over its space, by protocol.
        reference: ``retrain``, or ``none`` where retraining is out of reach.
    """

    name: str
    title: str
    about: str
    problem: str
    forget: tuple[Forgetting, ...]
    seeds: int
    series: tuple[Series, ...]
    reference: str = "retrain"

    def __post_init__(self) -> None:
        for target in _twice(str(target) for forgetting in self.forget for target in forgetting.targets):
            raise GradPivotError(f"forget names {target} twice; take one out")
        for series in self.series:
            for method in _twice(series.methods):
                raise GradPivotError(
                    f"protocol {series.protocol}, {series.name} asks twice for {method.label}; take one out"
                )

    @property
    def protocols(self) -> list[str]:
        """The protocols, in the order of the file."""
        return list(dict.fromkeys(series.protocol for series in self.series))

    @property
    def runs(self) -> int:
        """How many runs it is in all, originals and references not counted."""
        targets = sum(len(forgetting.targets) for forgetting in self.forget)
        return targets * self.seeds * sum(len(series.methods) for series in self.series)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary with every setting spelled out."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "problem": self.problem,
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
        forget: Sequence[Forgetting] | None = None,
        seeds: int | None = None,
    ) -> Recipe:
        """A part of the recipe: some methods (by series or method name), all but some, protocols, targets or seeds.

        Raises:
            GradPivotError: for a name that is not in it, with those that are.
        """
        chosen = self.series
        if protocols is not None:
            _known("protocol", protocols, self.protocols)
            chosen = tuple(s for s in chosen if s.protocol in protocols)
        if methods is not None:
            chosen = tuple(s for s in chosen if s in self._named(methods))
        unwanted = self._named(without)
        chosen = tuple(s for s in chosen if s not in unwanted)
        if not chosen:
            raise GradPivotError(f"nothing of the recipe {self.name} is left to run; leave less out")
        if seeds is not None and seeds < 1:
            raise GradPivotError(f"--seeds is {seeds}; give 1 or more")
        return replace(
            self,
            series=chosen,
            forget=tuple(forget) if forget else self.forget,
            seeds=self.seeds if seeds is None else seeds,
        )

    def suited(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with a problem's own settings, such as its batch size, where it leaves them open (None)."""
        series = tuple(
            replace(one, methods=tuple(filled(method, settings) for method in one.methods))
            for one in self.series
        )
        return replace(self, series=series)

    def _named(self, names: Sequence[str]) -> list[Series]:
        """The series of these names or methods, in any case of letters."""
        wanted = [name.casefold() for name in names]
        _known("method", wanted, [n for s in self.series for n in (s.method, s.name.casefold())])
        return [s for s in self.series if s.method in wanted or s.name.casefold() in wanted]


def filled(method: Method, settings: Mapping[str, Any]) -> Method:
    """The method with these settings where its own are None."""
    open_ = {name: value for name, value in settings.items() if getattr(method, name, ...) is None}
    return replace(method, **open_)


def list_recipes() -> list[str]:
    """The names of the recipes that come with the package and name a problem."""
    if not _folder().is_dir():
        return []
    found = [path.name.removesuffix(".yaml") for path in _folder().iterdir() if path.name.endswith(".yaml")]
    return sorted(name for name in found if "problem" in _resolved(name))


def read_recipe_text(name: str | Path) -> str:
    """The text of a recipe: one of ours by name, or a file.

    Raises:
        GradPivotError: if there is none, with the nearest name.
    """
    shipped = _folder() / f"{name}.yaml"
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.is_file():
        near = difflib.get_close_matches(str(name), list_recipes(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise GradPivotError(
            f"there is no recipe {str(name)!r}{hint} Ours are {', '.join(list_recipes())}; your own is a YAML file"
        )
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GradPivotError(f"cannot read the recipe {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(f"the recipe {path} is not text in UTF-8") from None


def load_recipe(name: str | Path) -> Recipe:
    """Read and check a recipe: one of ours by name, or a file of your own.

    Raises:
        GradPivotError: in one line that says where in the file what is wrong, and what is possible there.
    """
    content = _resolved(name)
    label = Path(name).stem
    try:
        return _recipe(label, content)
    except GradPivotError as error:
        raise GradPivotError(f"recipe {name}: {error}") from None


def numbers_in(text: Any) -> tuple[int, ...]:
    """``3``, ``3,5`` or ``0-4`` as numbers.

    Raises:
        GradPivotError: if it is something else.
    """
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = ",".join(map(str, text))
    found: list[int] = []
    try:
        for part in str(text).split(","):
            first, dash, last = part.partition("-")
            some = range(int(first), int(last) + 1) if dash else [int(first)]
            if not 1 <= len(some) <= MOST_SETTINGS:
                raise ValueError
            found += some
    except ValueError:
        raise GradPivotError(f"cannot read the classes {text!r}; write 3, or 3,5, or 0-4") from None
    return tuple(dict.fromkeys(found))


def _folder() -> Traversable:
    return resources.files("gradpivot.recipes") / "files"


def _resolved(name: str | Path, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The file's content with what it extends filled in."""
    if _identity(name) in map(_identity, seen):
        raise GradPivotError(f"recipe {seen[0]} extends itself: {' → '.join((*seen, str(name)))}")
    try:
        content = yaml.load(read_recipe_text(name), _Loader)
    except yaml.YAMLError as error:
        raise GradPivotError(f"recipe {name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise GradPivotError(f"recipe {name} must be a mapping with {', '.join(_KEYS)}")
    parent = content.pop("extends", None)
    if parent is None:
        return content
    below = _resolved(_beside(name, str(parent)), (*seen, str(name)))
    # What is forgotten is replaced as a whole; half of one recipe's and half of another's is neither.
    if "forget" in content:
        below.pop("forget", None)
    return _merged(below, content)


def _beside(name: str | Path, parent: str) -> str:
    """One of ours by name; a file is looked for beside the one that extends it."""
    return parent if (_folder() / f"{parent}.yaml").is_file() else str(Path(name).parent / parent)


def _identity(name: str | Path) -> str:
    """One name for a recipe, however its path is spelled."""
    return str(name) if (_folder() / f"{name}.yaml").is_file() else str(Path(name).resolve())


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key may stand only once: of two series of one name, one would be lost silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys differ."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
        for key in _twice(key for key in keys if isinstance(key, Hashable)):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


_MERGE = "tag:yaml.org,2002:merge"


def _twice(things: Iterable[Any]) -> Iterator[Any]:
    """Those that equal an earlier one."""
    seen = set()
    for thing in things:
        if thing in seen:
            yield thing
        seen.add(thing)


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` with ``above`` on top, mapping by mapping; an explicit null takes a key away."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(old, dict) and isinstance(value, Mapping) and not _is_range(value):
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _recipe(name: str, content: Mapping[str, Any]) -> Recipe:
    _only_keys(content, _KEYS, "the recipe")
    if content.get("schema") != SCHEMA:
        raise GradPivotError(f"its schema is {content.get('schema')!r}; this version reads {SCHEMA!r}")
    for needed in ("problem", "forget", "protocols"):
        if not content.get(needed):
            raise GradPivotError(f"it has no {needed!r}; see 'gradpivot recipes digits' for a whole one")
    seeds = content.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise GradPivotError(f"seeds is {seeds!r}; give how many, 1 or more")
    reference = content.get("reference", "retrain")
    if reference not in _REFERENCES:
        raise GradPivotError(f"reference is {reference!r}; choose one of {', '.join(_REFERENCES)}")
    _import_module_of(str(content["problem"]))
    protocols = _mapping(content["protocols"], "protocols")
    series = [
        found
        for label, protocol in protocols.items()
        for found in _protocol(str(label), _mapping(protocol, f"protocol {label}"))
    ]
    return Recipe(
        name=name,
        title=str(content.get("title", name)),
        about=" ".join(str(content.get("about", "")).split()),
        problem=str(content["problem"]),
        forget=_forgettings(content["forget"]),
        seeds=seeds,
        series=tuple(series),
        reference=reference,
    )


def _import_module_of(problem: str) -> None:
    """Import a user's own problem first: its module may register the methods and objectives that the recipe names."""
    module, colon, _ = problem.partition(":")
    if colon:
        # What is wrong with it is told when the problem itself is asked for.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def _forgettings(given: Any) -> tuple[Forgetting, ...]:
    entries = given if isinstance(given, list) else [given]
    found = []
    for entry in entries:
        entry = _mapping(entry, "forget")
        _only_keys(entry, ("classes", "fraction"), "forget")
        fraction = _number(entry.get("fraction"))
        if fraction is not None and not isinstance(fraction, int | float):
            raise GradPivotError(f"forget: fraction is {fraction!r}; give a number between 0 and 1")
        classes = numbers_in(entry["classes"]) if "classes" in entry else ()
        found.append(Forgetting(classes=classes, fraction=fraction))
    return tuple(found)


def _protocol(label: str, content: Mapping[str, Any]) -> Iterable[Series]:
    where = f"protocol {label}"
    _only_keys(content, _PROTOCOL_KEYS, where)
    base = content.get("base", label if label in ("paper", "clean") else "clean")
    shared = _mapping(content.get("settings", {}), f"{where}, settings")
    series = _mapping(content.get("series", {}), f"{where}, series")
    if not series:
        raise GradPivotError(
            f"{where} has no series; add one such as CUP: {{method: cup, gamma: [0.3, 0.5]}}"
        )
    _check_shared(shared, f"{where}, settings")
    for name, entry in series.items():
        try:
            methods = _space(str(base), shared, _mapping(entry, "a series"))
        except GradPivotError as error:
            raise GradPivotError(f"{where}, {name}: {error}") from None
        yield Series(name=str(name), protocol=label, methods=methods)


def _check_shared(shared: Mapping[str, Any], where: str) -> None:
    """A setting that no method has is a slip, and would be left out silently."""
    kinds = [method_class(name) for name in list_methods()]
    _only_keys(shared, sorted({field.name for kind in kinds for field in dataclasses.fields(kind)}), where)


def _space(base: str, shared: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[Method, ...]:
    """Every combination of what is searched, with what is fixed."""
    if "method" not in entry:
        raise GradPivotError("it names no method; add method: cup (see 'gradpivot methods')")
    kind = method_class(str(entry["method"]))
    fields = {field.name for field in dataclasses.fields(kind)}
    given = {name: value for name, value in shared.items() if name in fields}
    given |= {name: value for name, value in entry.items() if name != "method"}
    values = {str(name): _values(str(name), value) for name, value in given.items()}
    count = math.prod(len(some) for some in values.values())
    if not 1 <= count <= MOST_SETTINGS:
        raise GradPivotError(f"its space has {count} settings; give between 1 and {MOST_SETTINGS}")
    return tuple(
        kind.protocol(base, **dict(zip(values, combination, strict=True)))
        for combination in itertools.product(*values.values())
    )


def _values(name: str, given: Any) -> list[Any]:
    """What a setting takes in turn: a list as it is, a range spread out, a plain value alone."""
    if isinstance(given, list):
        if not given:
            raise GradPivotError(f"{name} is an empty list; give at least one value")
        for value in given:
            if isinstance(value, list | Mapping):
                raise GradPivotError(f"{name} has {value!r} in its list; a list holds plain values")
        return [_number(value) for value in given]
    return _range(name, given) if isinstance(given, Mapping) else [_number(given)]


def _is_range(given: Mapping[str, Any]) -> bool:
    return "from" in given and "to" in given


def _range(name: str, given: Mapping[str, Any]) -> list[float]:
    first, last, count = (_number(given.get(key)) for key in ("from", "to", "count"))
    scale = given.get("scale", "linear")
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (first, last))
    sound = (
        numeric and isinstance(count, int) and 2 <= count <= MOST_SETTINGS and set(given) <= set(_RANGE_KEYS)
    )
    if not sound or scale not in ("linear", "log") or (scale == "log" and min(first, last) <= 0):
        raise GradPivotError(
            f"{name} is {dict(given)}; a range is {{from: 1e-4, to: 1e-2, count: 20, scale: linear or log}}"
        )
    shares = [i / (count - 1) for i in range(1, count - 1)]
    if scale == "log":
        between = [_tidy(first * (last / first) ** share) for share in shares]
    else:
        between = [_tidy(first + (last - first) * share) for share in shares]
    return [float(first), *between, float(last)]


def _tidy(value: float) -> float:
    """Ten digits are plenty, and 0.1 + 0.2 is then 0.3."""
    return float(f"{value:.10g}")


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-4, without a point, as text; people mean the number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GradPivotError(f"{where} is {value!r}; it must be a mapping (name: value)")
    return value


def _only_keys(content: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in content:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise GradPivotError(f"{where} has no {key!r}{hint} It may have {', '.join(allowed)}")


def _known(what: str, wanted: Iterable[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            near = difflib.get_close_matches(name, there, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise GradPivotError(
                f"the recipe has no {what} {name!r}{hint} It has {', '.join(dict.fromkeys(there))}"
            )
