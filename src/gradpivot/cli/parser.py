"""Parse the command line, with options also from a protocol and a YAML file."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Annotated, Any, TypeGuard, Union

import tyro
import yaml

from gradpivot.cli import options
from gradpivot.cli.help import command_help, main_help, nested_help, shown_options
from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.methods import list_methods, method_class
from gradpivot.runtime import import_path

__all__ = ["look_here", "parse", "print_completion"]

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
"""Commands as the help lists them; None for those that have commands of their own."""
_COMMANDS = {name: kind for group in _GROUPS.values() for name, kind in group.items()}


def parse(words: Sequence[str]) -> Any:
    """The options of the command that the words name.

    Exits with status 0 after help, and with status 2 and one line for a word that is wrong.
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
    return _parsed(_with_file_and_protocol(words))


class _UsageError(GradPivotError):
    """A word that is no command, method or option."""


def _parsed(words: Sequence[str]) -> Any:
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            chosen = _by_tyro(words)
    except SystemExit as stop:
        if not stop.code:
            raise
        error = _refusal(stop)
        line = _without_box(said.getvalue(), words[0]) if error is None else str(error)
        sys.stderr.write(f"gradpivot: {' '.join(line.split())}\n")
        raise SystemExit(2) from None
    sys.stderr.write(said.getvalue())
    return chosen


def _by_tyro(words: Sequence[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(
        {name: _options_of(name) for name in _COMMANDS}, prog="gradpivot", args=words, config=_CONFIG
    )


def _without_box(text: str, command: str) -> str:
    """The parser's message in one line, without its frame and the help below it."""
    parts = [line.strip("│ ") for line in text.splitlines() if not re.match(r"\s*[╭╰├]", line)]
    line = " ".join(part for part in parts if part and not set(part) <= set("─ "))
    line = re.split(r" Argument helptext| For full helptext|Missing from [^:]*:", f" {line}")[0].strip()
    return line or f"'{command}' lacks a required argument; see 'gradpivot {command} --help'"


def _refusal(stop: SystemExit) -> GradPivotError | None:
    """The error that a setting raised for its value, if that is why parsing failed."""
    cause: BaseException | None = stop
    while cause is not None and not isinstance(cause, GradPivotError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _check_command(words: Sequence[str]) -> None:
    """Raise if the first words name no command."""
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
            raise _UsageError(f"there is no {command} {words[1]!r}{hint} Choose from {', '.join(kinds)}")
    named = words[1] if command in _WITH_METHOD and len(words) > 1 else ""
    if named and not named.startswith("-") and not _is_path(named) and named not in list_methods():
        hint = did_you_mean(named, list_methods())
        raise _UsageError(f"there is no method {named!r}{hint} See 'gradpivot methods'")


def _check_options(words: Sequence[str]) -> None:
    """Raise if a word looks like an option and is none."""
    command = words[0]
    kind = _NESTED[command][1].get(words[1]) if command in _NESTED and len(words) > 1 else _COMMANDS.get(command)
    if kind is None or any(_is_path(word) for word in words):
        return
    known = {one.flag for one in shown_options(kind)}
    if command in _WITH_METHOD:
        place = _place_of_method(words[1:])
        # A file may name the method, and the parser then knows its options.
        names = list_methods() if place is None and _value_of("--config", words) else [words[1:][place or 0]]
        names = names if place is not None or len(names) > 1 else ["cup"]
        known |= {f"--{f.name.replace('_', '-')}" for name in names for f in dataclasses.fields(method_class(name))}
    for word in words[1:]:
        flag = word.partition("=")[0].replace("_", "-")
        plain = flag.replace("--no-", "--", 1)
        if flag.startswith("--") and not {flag, plain, plain.replace("--", "--no-", 1)} & known and flag != "--":
            hint = did_you_mean(flag, known)
            raise _UsageError(f"'{command}' has no option {word!r}{hint} See 'gradpivot {command} --help-all'")


def _help(words: Sequence[str]) -> str:
    """The help that the words ask for."""
    named = [word for word in words if not word.startswith("-")]
    if not named:
        return main_help({title: {name: _about(name) for name in group} for title, group in _GROUPS.items()})
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
    place = _place_of_method(words[1:])
    if place is not None:
        look_here()
    method = method_class("cup" if place is None else words[1:][place])
    methods = {name: _first_line(method_class(name)) for name in list_methods()}
    return command_help(command, kind, everything=everything, methods=methods, method=method)


def _about(command: str) -> str:
    kind = _COMMANDS[command]
    return _NESTED[command][0] if kind is None else _first_line(kind)


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def print_completion(shell: str) -> None:
    """Write a completion script to standard output."""
    try:
        _parsed(["--tyro-print-completion", shell])
    except SystemExit as done:
        if done.code:
            raise


def _options_of(command: str) -> Callable[..., Any]:
    if command in _NESTED:
        return _nested(*_NESTED[command])
    kind = _COMMANDS[command]
    assert kind is not None
    return _choosing_method(kind) if command in _WITH_METHOD else kind


def _choosing_method(command: type[Any]) -> type[Any]:
    """The command's options with every registered method as a subcommand, CUP if none is named."""
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
    """A command that has commands of its own."""
    choices = [
        Annotated[kind, tyro.conf.subcommand(name, description=_first_line(kind))] for name, kind in kinds.items()
    ]
    return dataclasses.make_dataclass("NestedOptions", [("chosen", Union[*choices])], namespace={"__doc__": about})


def _with_file_and_protocol(words: list[str]) -> list[str]:
    """The words with the protocol's and the file's options put before the typed ones, which then win."""
    if not words:
        return words
    command, typed = words[0], words[1:]
    settings = _read_file(_value_of("--config", typed))
    if command == "train":
        settings.pop("method", None)
        recipe = _value_of("--recipe", typed) or str(settings.get("recipe", "problem"))
        return [command, *_training_words(recipe, typed, settings), *_as_words(settings), *typed]
    if command not in _WITH_METHOD:
        # 'reproduce' has options only after the name of its experiment.
        named = 1 if typed and typed[0] in _EXPERIMENTS else 0
        return [command, *typed[:named], *_as_words(settings), *typed[named:]]
    protocol = _value_of("--protocol", typed) or settings.get("protocol")
    place = _place_of_method(typed)
    chosen = settings.get("method") if place is None else typed[place]
    retrains = chosen == "retrain"
    problem = _value_of("--problem", typed) or settings.get("problem")
    if _is_path(problem):
        # The module may register objectives. If it cannot be imported, loading the problem reports that.
        look_here()
        with suppress(GradPivotError):
            import_path(problem)
    if _is_path(chosen):
        look_here()
        method_class(chosen)  # From here on it is one of the subcommands.
    if not settings and protocol != "paper" and not retrains:
        return words
    from_file = settings.pop("method", "cup")
    name = str(from_file) if place is None else typed.pop(place)
    kind = method_class(name)
    if retrains:
        printed = _training_words("paper" if protocol == "paper" else "problem", typed, settings)
    else:
        printed = _as_words(kind.paper) if protocol == "paper" else []
    # The method's name comes first, because its options are only known after it.
    return [command, name, *printed, *_as_words(settings), *typed]


def _training_words(recipe: str, typed: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """A training recipe's settings as words; typed options come after them and win."""
    if recipe not in ("problem", "paper", "short"):
        # The parser says what is wrong with it.
        return []
    from gradpivot.experiments import find_problem

    look_here()
    name = _value_of("--problem", typed) or settings.get("problem") or options.ProblemRun().problem
    chosen = find_problem(str(name)).training_recipe(recipe).to_dict()
    return _as_words({name: value for name, value in chosen.items() if name != "method"})


def look_here() -> None:
    """Import modules from the current folder, as "python -m" does and console scripts don't."""
    sys.path.insert(0, str(Path.cwd()))


def _is_path(word: Any) -> TypeGuard[str]:
    """Whether the word is an import path: my_module:MyMethod."""
    return isinstance(word, str) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", word) is not None


def _place_of_method(words: Sequence[str]) -> int | None:
    """The position of the method's name; option values don't count."""
    flags = {f"--{f.name}" for kind in vars(options).values() if dataclasses.is_dataclass(kind)
             for f in dataclasses.fields(kind) if f.type == "bool"}  # fmt: skip
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        is_method = word in list_methods() or _is_path(word)
        if is_method and (not before.startswith("--") or before in flags or "=" in before):
            return place
    return None


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """The value typed after an option, if any."""
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise GradPivotError(f"cannot read the options file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(f"the options file {path} is not text in UTF-8") from None
    except yaml.YAMLError as error:
        raise GradPivotError(f"the options file {path} is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise GradPivotError(f"the options file {path} must hold lines such as 'gamma: 0.5'")
    return {str(key).replace("-", "_"): value for key, value in content.items()}


def _as_words(settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        elif isinstance(value, list):
            # One option takes several words; the others take them joined, as in --classes 3,5.
            several = name in ("values", "map")
            words += [option, *(map(str, value) if several else [",".join(map(str, value))])]
        else:
            words += [option, str(value)]
    return words
