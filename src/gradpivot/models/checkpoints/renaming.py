"""Match the keys of a third-party checkpoint to those of a model: by rules, then automatically.

Keys are matched by name, never by shape or by order: two layers of the same shape could be swapped silently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gradpivot.errors import GradPivotError

__all__ = ["Fit", "fit_names", "parse_rule", "rename"]

# What nn.DataParallel, DistributedDataParallel and torch.compile put around a module.
_WRAPPERS = {"module", "_orig_mod"}
# Common names of the same layer. A synonym is used only if every key then matches.
_SYNONYMS = (("linear", "fc", "classifier", "head", "last_linear", "output"), ("shortcut", "downsample", "skip"))
_COUNTER = "num_batches_tracked"
_DROPPED = "-"


@dataclass(frozen=True)
class Fit:
    """Match between the keys of a file and those of a model.

    Attributes:
        names: Key of the file to key of the model.
        notes: What was renamed.
        missing: Keys of the model that the file lacks, but for BatchNorm's ``num_batches_tracked``: old files do not
            have that counter, and no prediction depends on it.
        unexpected: Keys, as renamed, that the model does not have.
    """

    names: Mapping[str, str]
    notes: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every key has a match."""
        return not self.missing and not self.unexpected


def parse_rule(rule: str) -> tuple[re.Pattern[str], str]:
    r"""A rule ``old=new``: a pattern for whole parts of a key, and their replacement.

    ``fc=linear`` renames the part ``fc`` between dots; ``^net=`` removes a leading ``net.``;
    ``aux=-`` drops every key with the part ``aux``. ``old`` may be a regular expression, and ``new`` may refer
    to its groups as ``\1``.

    Raises:
        GradPivotError: if the rule does not have that form.
    """
    old, sign, new = rule.rpartition("=")
    if not sign or not old:
        raise GradPivotError(f"the rule {rule!r} renames nothing; write old=new, for example fc=linear")
    try:
        return re.compile(rf"(?:^|(?<=\.))(?:{old})(?=\.|$)"), new
    except re.error as error:
        raise GradPivotError(f"{old!r} in the rule {rule!r} is not a regular expression: {error}") from None


def rename(keys: Iterable[str], rules: Iterable[str]) -> dict[str, str]:
    """Rename the keys by the rules, applied in order; omits keys that a rule drops.

    Raises:
        GradPivotError: if a rule matches no key, or two keys get the same name.
    """
    names = {key: key for key in keys}
    for rule in rules:
        names = _by_rule(names, rule)
    twice = _first_twice(names.values())
    if twice is not None:
        both = [key for key, name in names.items() if name == twice]
        raise GradPivotError(f"the rules rename both {both[0]!r} and {both[1]!r} to {twice!r}")
    return names


def fit_names(names: Mapping[str, str], wanted: Collection[str]) -> Fit:
    """Match the names to those of a model: unchanged, without wrappers, under another prefix, by synonyms.

    Returns the first complete match, or the nearest one with its missing and unexpected keys.
    """
    best: Fit | None = None
    for tried, notes in _readings(names, wanted):
        found = _compare(tried, notes, wanted)
        if found.is_whole:
            return found
        if best is None or len(found.missing + found.unexpected) < len(best.missing + best.unexpected):
            best = found
    assert best is not None
    return best


def _by_rule(names: Mapping[str, str], rule: str) -> dict[str, str]:
    pattern, new = parse_rule(rule)
    if not any(pattern.search(name) for name in names.values()):
        some = ", ".join(list(names.values())[:3])
        raise GradPivotError(f"the rule {rule!r} matches no key; the keys are {some}, …")
    if new == _DROPPED:
        return {key: name for key, name in names.items() if not pattern.search(name)}
    try:
        return {key: _tidy(pattern.sub(new, name)) for key, name in names.items()}
    except (re.error, IndexError) as error:
        raise GradPivotError(f"{new!r} in the rule {rule!r} is not a valid replacement: {error}") from None


def _tidy(name: str) -> str:
    """Remove the dots that a dropped part left behind."""
    return ".".join(part for part in name.split(".") if part)


def _readings(names: Mapping[str, str], wanted: Collection[str]) -> Iterator[tuple[Mapping[str, str], tuple[str, ...]]]:
    """Candidate renamings, the simplest first, each with its notes."""
    unwrapped = {key: _without_wrappers(name) for key, name in names.items()}
    starts: list[tuple[Mapping[str, str], tuple[str, ...]]] = [(names, ())]
    if unwrapped != dict(names) and _first_twice(unwrapped.values()) is None:
        parts = sorted({part for name in names.values() for part in name.split(".")} & _WRAPPERS)
        starts.append((unwrapped, (f"without {_quoted(parts)}",)))
    for start, notes in starts:
        yield start, notes
    for start, notes in starts:
        moved, how = _under_prefix(start, wanted)
        for tried, so_far in ((start, notes), (moved, notes + how)):
            swapped, swaps = _by_synonyms(tried, wanted)
            yield tried, so_far
            yield swapped, so_far + swaps


def _without_wrappers(name: str) -> str:
    *parts, last = name.split(".")
    return ".".join([part for part in parts if part not in _WRAPPERS] + [last])


def _under_prefix(names: Mapping[str, str], wanted: Collection[str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Replace the prefix that all names share by the one that all of the model's names share."""
    ours, theirs = _shared_prefix(wanted), _shared_prefix(names.values())
    if ours == theirs:
        return names, ()
    moved = {key: ours + name[len(theirs) :] for key, name in names.items()}
    if not ours:
        return moved, (f"without {theirs!r} in front",)
    return moved, (f"{theirs!r} in front is {ours!r} here" if theirs else f"under {ours!r}",)


def _shared_prefix(names: Collection[str]) -> str:
    """The common prefix of all names, including the dot."""
    split = [name.split(".")[:-1] for name in names]
    shared = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0] + ".")
    return "".join(shared)


def _by_synonyms(names: Mapping[str, str], wanted: Collection[str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Replace parts of a name that the model does not have by a synonym that it has, if there is only one."""
    theirs = {part for name in names.values() for part in name.split(".")}
    ours = {part for name in wanted for part in name.split(".")}
    swaps = {}
    for row in _SYNONYMS:
        unknown = [word for word in row if word in theirs - ours]
        free = [word for word in row if word in ours - theirs]
        if len(unknown) == len(free) == 1:
            swaps[unknown[0]] = free[0]
    swapped = {key: ".".join(swaps.get(p, p) for p in name.split(".")) for key, name in names.items()}
    return swapped, tuple(f"{old!r} is {new!r} here" for old, new in swaps.items())


def _compare(names: Mapping[str, str], notes: tuple[str, ...], wanted: Collection[str]) -> Fit:
    given = set(names.values())
    missing = tuple(k for k in wanted if k not in given and k.split(".")[-1] != _COUNTER)
    return Fit(names, notes, missing, tuple(name for name in names.values() if name not in wanted))


def _first_twice(names: Iterable[str]) -> str | None:
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _quoted(words: Iterable[str]) -> str:
    return " and ".join(repr(word) for word in words)
