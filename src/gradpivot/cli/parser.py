"""Parse the command line; a protocol and a YAML file may set options, too."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Annotated, Any, TypeGuard, Union

import tyro

from gradpivot.cli import options
from gradpivot.cli.help import command_help, main_help, nested_help, shown_options
from gradpivot.cli.paths import refuse_empty_paths, with_home
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.methods import list_methods, method_class
from gradpivot.runtime import import_path, parse_yaml

__all__ = ["parse", "print_completion"]

_WITH_METHOD = ("unlearn", "trace")
_EXPERIMENTS: dict[str, type[Any]] = {
    "toy": options.ReproduceToyOptions,
    "digits": options.ReproduceDigitsOptions,
    "cifar10-class": options.ReproduceCifar10ClassOptions,
    "vae": options.ReproduceVaeOptions,
    "ddpm": options.ReproduceDdpmOptions,
}
_STORE: dict[str, type[Any]] = {
    "export": options.StoreExportOptions,
    "import": options.StoreImportOptions,
    "check": options.StoreCheckOptions,
}
_DATA: dict[str, type[Any]] = {
    "get": options.DataGetOptions,
    "list": options.DataListOptions,
    "check": options.DataCheckOptions,
}
_CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.CascadeSubcommandArgs)
_HELP = ("--help", "-h", "--help-all")
_NESTED = {
    "reproduce": ("Run an experiment of the paper.", _EXPERIMENTS),
    "store": ("Export, import or check the finished runs of a sweep.", _STORE),
    "data": ("Download, list or check datasets and weights.", _DATA),
}
_GROUPS: dict[str, dict[str, type[Any] | None]] = {
    "Start": {"demo": options.DemoOptions},
    "Forget": {
        "unlearn": options.UnlearnOptions,
        "trace": options.TraceOptions,
        "train": options.TrainOptions,
        "judge": options.JudgeOptions,
    },
    "Prove": {"audit": options.AuditOptions},
    "Compare methods": {
        "methods": options.MethodsOptions,
        "sweep": options.SweepOptions,
        "compare": options.CompareOptions,
        "recipes": options.RecipesOptions,
        "store": None,
        "reproduce": None,
    },
    "Look at results": {"report": options.ReportOptions, "rerun": options.RerunOptions},
    "Set up": {"data": None, "completion": options.CompletionOptions},
}
"""Commands in the order of the help; None for commands with subcommands."""
_COMMANDS = {name: kind for group in _GROUPS.values() for name, kind in group.items()}


def parse(words: Sequence[str]) -> Any:
    """Parse a command line into the options of its command.

    Exits with status 0 after printing help, and with status 2 and a one-line message for a usage error.
    """
    words = list(words)
    try:
        _check_command(words)
        if not words or set(_HELP) & set(words):
            sys.stdout.write(_help(words))
            raise SystemExit(0)
        _check_options(words)
    except _UsageError as error:
        sys.stderr.write(f"gradpivot: {error}\n")
        raise SystemExit(2) from None
    complete = _add_defaults(words)
    refuse_empty_paths(complete)
    return with_home(_parse_words(complete))


class _UsageError(GradPivotError):
    """An unknown command, method or option."""


def _parse_words(words: Sequence[str]) -> Any:
    stderr = io.StringIO()
    try:
        with redirect_stderr(stderr):
            chosen = _run_tyro(words)
    except SystemExit as stop:
        if not stop.code:
            raise
        error = _validation_error(stop)
        line = _strip_box(stderr.getvalue(), words[0]) if error is None else str(error)
        sys.stderr.write(f"gradpivot: {' '.join(line.split())}\n")
        raise SystemExit(2) from None
    sys.stderr.write(stderr.getvalue())
    return chosen


def _run_tyro(words: Sequence[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(
        {name: _options_of(name) for name in _COMMANDS}, prog="gradpivot", args=words, config=_CONFIG
    )


def _strip_box(text: str, command: str) -> str:
    """Tyro's error message in one line, without its box and the appended help."""
    # An ASCII terminal gets a title, a line of dashes and no box.
    text = re.sub(r"\A[^\n]*\n *-{5,} *\n", "", text)
    parts = [line.strip("│ ") for line in text.splitlines() if not re.match(r"\s*[╭╰├]", line)]
    line = " ".join(part for part in parts if part and not set(part) <= set("─- "))
    line = re.split(r" Argument helptext| For full helptext| Perhaps you meant|Missing from [^:]*:", f" {line}")[0]
    for pattern, wanted in _WRONG_VALUES.items():
        line = re.sub(rf"Error parsing (--\S+): .*{pattern}", rf"\1 is \2; give {wanted}", line)
    return line.strip() or f"'{command}' lacks a required argument; see 'gradpivot {command} --help'"


_WRONG_VALUES = {
    r"could not convert string to float: ('.*')": "a number",
    r"invalid literal for int\(\) with base 10: ('.*')": "a whole number",
    r"Could not find valid parse for arguments: \[(.*)\]": "numbers",
}
"""Tyro's messages for values of the wrong type, and what to give instead."""


def _validation_error(stop: SystemExit) -> GradPivotError | None:
    """The error raised by a setting's own validation, if that is why parsing failed."""
    cause: BaseException | None = stop
    while cause is not None and not isinstance(cause, GradPivotError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _check_command(words: Sequence[str]) -> None:
    """Raise if the command, subcommand or method is unknown."""
    if not words or words[0].startswith("-"):
        return
    command = words[0]
    if command not in _COMMANDS:
        hint = did_you_mean(command, _COMMANDS)
        raise _UsageError(f"there is no command {command!r}{hint} See 'gradpivot --help'")
    if command in _NESTED and len(words) > 1 and not words[1].startswith("-"):
        kinds = _NESTED[command][1]
        if words[1] not in kinds:
            hint = did_you_mean(words[1], kinds)
            raise _UsageError(f"{command!r} has no subcommand {words[1]!r}{hint} Choose from {', '.join(kinds)}")
    named = words[1] if command in _WITH_METHOD and len(words) > 1 else ""
    if named and not named.startswith("-") and not _is_path(named) and named not in list_methods():
        hint = did_you_mean(named, list_methods())
        raise _UsageError(f"there is no method {named!r}{hint} See 'gradpivot methods'")


def _check_options(words: Sequence[str]) -> None:
    """Raise for an unknown option."""
    command = words[0]
    kind = _NESTED[command][1].get(words[1]) if command in _NESTED and len(words) > 1 else _COMMANDS.get(command)
    if kind is None:
        return
    known, settings = {one.flag for one in shown_options(kind)}, set()
    if command in _WITH_METHOD:
        position = _method_position(words[1:])
        if position is not None and _is_path(words[1:][position]):
            return
        # The YAML file may name the method, so accept the options of all methods here.
        names = list_methods() if position is None and _value_of("--config", words) else [words[1:][position or 0]]
        names = names if position is not None or len(names) > 1 else ["cup"]
        settings = {f"--{f.name.replace('_', '-')}" for name in names for f in dataclasses.fields(method_class(name))}
        known |= settings
    for word in words[1:]:
        flag = word.partition("=")[0].replace("_", "-")
        plain = flag.replace("--no-", "--", 1)
        if flag.startswith("--") and not {flag, plain, plain.replace("--", "--no-", 1)} & known and flag != "--":
            # The Python function takes gammas; the command takes the values of any knob.
            plural = command == "trace" and flag.removesuffix("s") in settings
            hint = "; did you mean '--values'?" if plural else did_you_mean(flag, known)
            raise _UsageError(f"'{command}' has no option {word!r}{hint} See 'gradpivot {command} --help-all'")


def _help(words: Sequence[str]) -> str:
    """The requested help text."""
    named = [word for word in words if not word.startswith("-")]
    if not named:
        return main_help({title: {name: _summary(name) for name in group} for title, group in _GROUPS.items()})
    command, everything = named[0], "--help-all" in words
    if command in _NESTED:
        about, kinds = _NESTED[command]
        if len(named) == 1:
            return nested_help(command, about, {name: _first_line(kind) for name, kind in kinds.items()})
        return command_help(f"{command} {named[1]}", kinds[named[1]], everything=everything)
    kind = _COMMANDS[command]
    assert kind is not None
    if command not in _WITH_METHOD:
        return command_help(command, kind, everything=everything)
    position = _method_position(words[1:])
    method = method_class("cup" if position is None else words[1:][position])
    methods = {name: _first_line(method_class(name)) for name in list_methods()}
    return command_help(command, kind, everything=everything, methods=methods, method=method)


def _summary(command: str) -> str:
    kind = _COMMANDS[command]
    return _NESTED[command][0] if kind is None else _first_line(kind)


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def print_completion(shell: str) -> None:
    """Print a shell completion script."""
    try:
        _parse_words(["--tyro-print-completion", shell])
    except SystemExit as done:
        if done.code:
            raise


def _options_of(command: str) -> Callable[..., Any]:
    if command in _NESTED:
        return _nested(*_NESTED[command])
    kind = _COMMANDS[command]
    assert kind is not None
    return _with_methods(kind) if command in _WITH_METHOD else kind


def _with_methods(command: type[Any]) -> type[Any]:
    """The command's options with every registered method as a subcommand; the default is CUP."""
    choice = tyro.extras.subcommand_type_from_defaults(
        {name: method_class(name)() for name in list_methods()},
        descriptions={name: _first_line(method_class(name)) for name in list_methods()},
        prefix_names=False,
    )
    default = dataclasses.field(default=method_class("cup")())
    return dataclasses.make_dataclass(
        command.__name__,
        [("method", choice, default)],
        bases=(command,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": command.__doc__},
    )


def _nested(about: str, kinds: Mapping[str, type[Any]]) -> type[Any]:
    """Options of a command with subcommands."""
    choices = [
        Annotated[kind, tyro.conf.subcommand(name, description=_first_line(kind))] for name, kind in kinds.items()
    ]
    return dataclasses.make_dataclass("NestedOptions", [("chosen", Union[*choices])], namespace={"__doc__": about})


def _add_defaults(words: list[str]) -> list[str]:
    """Insert the options of the protocol and the YAML file before the typed ones, which override them."""
    if not words:
        return words
    command, typed = words[0], words[1:]
    settings = _read_file(_value_of("--config", typed))
    if command == "train":
        settings.pop("method", None)
        recipe = _value_of("--recipe", typed) or str(settings.get("recipe", "problem"))
        return [command, *_training_words(recipe, typed, settings), *_to_words(settings), *typed]
    if command not in _WITH_METHOD:
        # Options of 'reproduce' come after the experiment's name.
        named = 1 if typed and typed[0] in _EXPERIMENTS else 0
        return [command, *typed[:named], *_to_words(settings), *typed[named:]]
    protocol = _value_of("--protocol", typed) or settings.get("protocol")
    position = _method_position(typed)
    chosen = settings.get("method") if position is None else typed[position]
    retrains = chosen == "retrain"
    problem = _value_of("--problem", typed) or settings.get("problem")
    if _is_path(problem):
        # The module may register objectives.
        try:
            import_path(problem)
        except GradPivotError as error:
            raise GradPivotError(f"cannot load the problem {problem!r}: {error}") from error
    if _is_path(chosen):
        method_class(chosen)  # Registers it as a subcommand.
    if not settings and protocol != "paper" and not retrains:
        return words
    from_file = settings.pop("method", "cup")
    name = str(from_file) if position is None else typed.pop(position)
    kind = method_class(name)
    if retrains:
        defaults = _training_words("paper" if protocol == "paper" else "problem", typed, settings)
    else:
        defaults = _to_words(kind.paper) if protocol == "paper" else []
    # The method's name comes first: its options are valid only after it.
    return [command, name, *defaults, *_to_words(settings), *typed]


def _training_words(recipe: str, typed: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """A training recipe's settings as command-line words; typed options follow and override them."""
    if recipe not in ("problem", "paper", "short"):
        # The parser reports the invalid name.
        return []
    from gradpivot.experiments import find_problem

    name = _value_of("--problem", typed) or settings.get("problem") or options.ProblemRun().problem
    chosen = find_problem(str(name)).training_recipe(recipe).to_dict()
    return _to_words({name: value for name, value in chosen.items() if name != "method"})


def _is_path(word: Any) -> TypeGuard[str]:
    """Whether the word is an import path such as my_module:MyMethod."""
    return isinstance(word, str) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", word) is not None


def _method_position(words: Sequence[str]) -> int | None:
    """Position of the method's name, which may also occur as the value of an option."""
    flags = {f"--{f.name}" for kind in vars(options).values() if dataclasses.is_dataclass(kind)
             for f in dataclasses.fields(kind) if f.type == "bool"}  # fmt: skip
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        is_method = word in list_methods() or _is_path(word)
        if is_method and (not before.startswith("--") or before in flags or "=" in before):
            return position
    return None


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """The value of an option in the command line, if given."""
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    if not path:
        raise GradPivotError("--config is empty; give a file")
    try:
        content = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise GradPivotError(f"cannot read the options file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(f"the options file {path} is not text in UTF-8") from None
    except ValueError as error:
        raise GradPivotError(f"the options file {path} is not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise GradPivotError(f"the options file {path} must hold lines such as 'gamma: 0.5'")
    return {str(key).replace("-", "_"): value for key, value in content.items()}


def _to_words(settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        elif isinstance(value, list):
            # These options take several words; the others take one, as in --classes 3,5.
            several = name in ("values", "map")
            words += [option, *(map(str, value) if several else [",".join(map(str, value))])]
        else:
            words += [option, str(value)]
    return words
