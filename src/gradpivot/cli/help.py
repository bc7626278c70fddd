"""Help texts, generated from the option dataclasses: common options on one page, the rest with ``--help-all``."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from gradpivot.cli.options.fields import FOLDED, HOW_MUCH, METAVAR, METHOD, OUTPUT, SECTION, SECTIONS

if TYPE_CHECKING:
    from gradpivot.methods import Method

__all__ = ["Shown", "command_help", "main_help", "nested_help", "shown_options"]

_WIDTH = 100
_INDENT, _COLUMN = 2, 24
_MAIN_SETTINGS = ("lr", "epochs")
"""Method settings shown next to the knob; the others are folded."""
_PLACEHOLDERS = {"Path": "PATH", "int": "N", "float": "X"}
_EXAMPLE = "example: "


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """An option as help shows it.

    Attributes:
        flag: ``--gamma``, or the name of a positional argument.
        value: Placeholder of its value; empty for a switch.
        text: Description and default.
        section: Title of its section.
        positional: Whether it is given without a flag.
    """

    flag: str
    value: str
    text: str
    section: str
    positional: bool


def main_help(groups: Mapping[str, Mapping[str, str]]) -> str:
    """The main help: all commands by group, one line each."""
    lines = [
        "usage: gradpivot COMMAND [OPTIONS]",
        "",
        "Make a trained PyTorch model forget chosen data, as much as you ask for and no more.",
    ]
    for title, commands in groups.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<12}{_shorten(about, _width() - 14)}" for name, about in commands.items()]
    return "\n".join([
        *lines,
        "",
        "Examples:",
        "  gradpivot demo",
        "  gradpivot unlearn cup --gamma 0.5 --classes 3",
        '  gradpivot unlearn --classes 3 --until "UA>=95" --keep "RA>=99"',
        "",
        "Options of a command: gradpivot COMMAND --help",
        "",
    ])  # fmt: skip


def nested_help(command: str, about: str, kinds: Mapping[str, str]) -> str:
    """Help of a command with subcommands."""
    lines = [f"usage: gradpivot {command} {{{','.join(kinds)}}} [OPTIONS]", "", about, ""]
    for name, what in kinds.items():
        lines += _entry(name, what)
    return "\n".join([*lines, "", f"Options: gradpivot {command} {next(iter(kinds))} --help", ""])


def command_help(
    command: str, options: type[Any], *, everything: bool, methods: Mapping[str, str] | None = None,
    method: type[Method] | None = None,
) -> str:  # fmt: skip
    """Help of a command.

    Args:
        command: Its name, such as ``store export``.
        options: Dataclass of its options.
        everything: Whether to show folded sections.
        methods: Summary of each method, for a command that takes one.
        method: The named method, or the default.
    """
    # A trace varies the knob, so its value doesn't matter there.
    shown = [*(_method_options(method, varied=command == "trace") if method else ()), *shown_options(options)]
    about, examples = _description(options)
    places = [f"[{one.value}]" if one.value.endswith("…") else one.value for one in shown if one.positional]
    named = ["[METHOD]"] if methods else []
    lines = [" ".join(["usage: gradpivot", command, *named, *places, "[OPTIONS]"]), "", *_wrap(about)]
    if examples:
        lines += ["", "Examples:", *(f"  {example}" for example in examples)]
    if methods and method:
        lines += ["", *_wrap(f"Methods: {', '.join(methods)}. Shown below: {method.name}.")]
    sections: dict[str, list[Shown]] = {title: [] for title in SECTIONS}
    for one in shown:
        sections[one.section].append(one)
    folded = [title for title in SECTIONS if title in FOLDED and sections[title]]
    visible = [title for title in SECTIONS if sections[title] and (everything or title not in folded)]
    for title in visible:
        lines += ["", f"{'Options' if len(visible) == 1 else title}:"]
        lines += [line for one in sections[title] for line in _entry(_heading(one), one.text)]
    if folded and not everything:
        counted = ", ".join(f"{title.lower()} ({len(sections[title])})" for title in folded)
        lines += ["", *_wrap(f"More with --help-all: {counted}.")]
    return "\n".join([*lines, ""])


def _heading(one: Shown) -> str:
    return one.value if one.positional else f"{one.flag} {one.value}".rstrip()


def shown_options(options: type[Any]) -> list[Shown]:
    """The options of a command: positional, its own, inherited and nested ones, in this order."""
    documented, hints = _docstrings(options), get_type_hints(options, include_extras=True)
    depth = {name: i for i, base in enumerate(options.__mro__) for name in vars(base).get("__annotations__", ())}
    shown, nested = [], []
    for field in sorted(dataclasses.fields(options), key=lambda field: depth[field.name]):
        hint = hints[field.name]
        if dataclasses.is_dataclass(_bare_type(hint)):
            nested += [replace(one, section=OUTPUT[SECTION]) if one.section == HOW_MUCH[SECTION] else one
                       for one in _method_options(_bare_type(hint))]  # fmt: skip
        else:
            shown.append(_option(field, hint, documented.get(field.name, "")))
    return [*sorted(shown, key=lambda one: not one.positional), *nested]


def _method_options(method: type[Method], varied: bool = False) -> Iterator[Shown]:
    """A method's settings: knob (unless ``varied``), learning rate and epochs are shown, the others folded."""
    from docstring_parser import parse

    from gradpivot.tasks import list_objectives

    meanings = {
        p.arg_name: p.description for base in reversed(method.__mro__) for p in parse(base.__doc__ or "").params
    }
    hints = get_type_hints(method, include_extras=True)
    for field in sorted(dataclasses.fields(method), key=lambda field: field.name not in (method.knob, "gamma")):
        text = " ".join((meanings.get(field.name) or "").split())
        if field.name == "objective":
            text = f"Forgetting loss: {', '.join([*getattr(method, 'extra_objectives', ()), *list_objectives()])}."
        main = field.name in (method.knob, "gamma", *_MAIN_SETTINGS) and not (varied and field.name == method.knob)
        one = _option(field, hints[field.name], text)
        yield replace(one, section=(HOW_MUCH if main else METHOD)[SECTION])


def _option(field: dataclasses.Field[Any], hint: Any, text: str) -> Shown:
    name, metadata = _option_name(field, hint), list(_metadata(hint))
    text = next((m.help for m in metadata if getattr(m, "help", None)), text).replace("``", "")
    positional = any("ositional" in repr(m) for m in metadata)
    kind = _bare_type(hint)
    switch = kind is bool
    flag = f"--no-{name}" if switch and field.default is True else f"--{name}"
    default = _default_text(field)
    known = "" if default is None or switch or default in ("", ".") else f" (default {default})"
    value = "" if switch else field.metadata.get(METAVAR) or _placeholder(name, kind)
    value = value.upper() if positional and METAVAR not in field.metadata else value
    section = field.metadata.get(SECTION, OUTPUT[SECTION])
    return Shown(flag=flag, value=value, text=text + known, section=section, positional=positional)


def _option_name(field: dataclasses.Field[Any], hint: Any) -> str:
    named = next((m.name for m in _metadata(hint) if getattr(m, "name", None)), field.name)
    return str(named).replace("_", "-")


def _metadata(hint: Any) -> Iterable[Any]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _bare_type(hint: Any) -> Any:
    """A type without annotations and without None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    optional = type(None) in get_args(hint) and len(kinds) == 1
    return kinds[0] if optional else hint


def _placeholder(name: str, kind: Any) -> str:
    """Placeholder of a value: its choices, or a word for its type."""
    many = get_origin(kind) is tuple
    if many:
        kind = _bare_type(get_args(kind)[0])
    literal = [str(choice) for choice in get_args(kind) if choice is not None]
    if (
        literal
        and getattr(get_origin(kind), "__name__", "") != "tuple"
        and all(isinstance(c, str) for c in get_args(kind))
    ):
        word = "|".join(literal)
    else:
        word = _PLACEHOLDERS.get(getattr(kind, "__name__", ""), name.upper())
    return f"{word} …" if many else word


def _default_text(field: dataclasses.Field[Any]) -> str | None:
    value = field.default
    if value is dataclasses.MISSING or value is None or value in ((), ""):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def _docstrings(options: type[Any]) -> dict[str, str]:
    """Field docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(options.__mro__):
        if not dataclasses.is_dataclass(base) or base.__module__ == "types":
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):  # created at run time; its documented fields are in its bases
            continue
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def _description(options: type[Any]) -> tuple[str, list[str]]:
    """Description and examples from a command's docstring."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.getdoc(options) or "")]
    examples = [part.removeprefix(_EXAMPLE) for part in paragraphs if part.startswith(_EXAMPLE)]
    return "\n\n".join(part for part in paragraphs if not part.startswith(_EXAMPLE)), examples


def _width() -> int:
    return min(_WIDTH, shutil.get_terminal_size((80, 24)).columns)


def _wrap(text: str) -> list[str]:
    return [line for part in text.split("\n\n") for line in [*textwrap.wrap(part, _width()), ""]][:-1]


def _entry(heading: str, text: str) -> list[str]:
    """Format an entry in two columns; a long heading gets its own line."""
    lines = textwrap.wrap(text, _width() - _COLUMN - _INDENT) or [""]
    start = f"{' ' * _INDENT}{heading}"
    space = " " * (_COLUMN + _INDENT)
    if len(heading) > _COLUMN - 2:
        return [start, *(f"{space}{line}" for line in lines)]
    first, *rest = lines
    return [f"{start:<{_COLUMN + _INDENT}}{first}".rstrip(), *(f"{space}{line}" for line in rest)]


def _shorten(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" …")
