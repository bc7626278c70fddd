"""From words to options: one parser for all commands, with options also from a protocol and a YAML file."""

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
from gradpivot.errors import GradPivotError
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
_ABOUT = """Controllable machine unlearning: make a trained PyTorch model forget, as much as you ask for and no more.

  gradpivot demo                                   a frontier of a real model, in a minute
  gradpivot unlearn cup --gamma 0.5 --classes 3    forget the digit 3
  gradpivot train --problem digits                 a model of your own to begin with
  gradpivot sweep digits --store runs/digits       every method, every digit, compared
  gradpivot methods                                what there is
  gradpivot --version
"""


def parse(words: Sequence[str]) -> Any:
    """The options of the command that the words name.

    Exits with status 2 and a hint for a word that is no option, as command lines do, and for a value that is none with
    the one line that its setting has for it.
    """
    words, told = _with_file_and_protocol(list(words)), io.StringIO()
    try:
        with redirect_stderr(told):
            chosen = _by_tyro(words)
    except SystemExit as stop:
        if (error := _refusal(stop)) is not None:
            sys.stderr.write(f"gradpivot: {' '.join(str(error).split())}\n")
            raise SystemExit(2) from None
        if not stop.code:
            raise
        # Once more, to the terminal itself, which has a width and colours.
        return _by_tyro(words)
    sys.stderr.write(told.getvalue())
    return chosen


def _by_tyro(words: Sequence[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(
        _commands(), prog="gradpivot", description=_ABOUT, args=words, config=_CONFIG
    )


def _refusal(stop: SystemExit) -> GradPivotError | None:
    """What one of our settings said of its value, if that is why the parser gave up; it draws a box around it."""
    cause: BaseException | None = stop
    while cause is not None and not isinstance(cause, GradPivotError):
        cause = cause.__cause__ or cause.__context__
    return cause


def print_completion(shell: str) -> None:
    """Write a completion script to standard output."""
    try:
        parse(["--tyro-print-completion", shell])
    except SystemExit as done:
        if done.code:
            raise


def _commands() -> dict[str, Callable[..., Any]]:
    return {
        "demo": options.DemoOptions,
        "train": options.TrainOptions,
        "unlearn": _choosing_method(options.UnlearnOptions),
        "trace": _choosing_method(options.TraceOptions),
        "judge": options.JudgeOptions,
        "reproduce": _nested("Run one of the paper's experiments, or ours.", _EXPERIMENTS),
        "sweep": options.SweepOptions,
        "compare": options.CompareOptions,
        "recipes": options.RecipesOptions,
        "store": _nested("Export, import or check the finished runs of a sweep.", _STORE),
        "data": _nested("Get, list or check data sets and weights.", _DATA),
        "methods": options.MethodsOptions,
        "rerun": options.RerunOptions,
        "report": options.ReportOptions,
        "completion": options.CompletionOptions,
    }


def _choosing_method(command: type[Any]) -> type[Any]:
    """The command's options with every registered method as a subcommand, CUP if none is named."""
    choice = tyro.extras.subcommand_type_from_defaults(
        {name: method_class(name)() for name in list_methods()},
        descriptions={name: (method_class(name).__doc__ or "").splitlines()[0] for name in list_methods()},
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
        Annotated[kind, tyro.conf.subcommand(name, description=(kind.__doc__ or "").splitlines()[0])]
        for name, kind in kinds.items()
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
    """A training recipe's settings as words: typed ones come after them and win, be they defaults or not."""
    if recipe not in ("problem", "paper", "short") or {"--help", "-h"} & set(typed):
        # What is mistyped is told by the parser; help needs no problem, which would import torch.
        return []
    from gradpivot.experiments import find_problem

    look_here()
    name = _value_of("--problem", typed) or settings.get("problem") or options.ProblemRun().problem
    chosen = find_problem(str(name)).training_recipe(recipe).to_dict()
    return _as_words({name: value for name, value in chosen.items() if name != "method"})


def look_here() -> None:
    """Find modules where the user stands: a console script, unlike "python -m", does not."""
    sys.path.insert(0, str(Path.cwd()))


def _is_path(word: Any) -> TypeGuard[str]:
    """Whether it can only be somebody's own method: my_module:MyMethod."""
    return isinstance(word, str) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", word) is not None


def _place_of_method(words: Sequence[str]) -> int | None:
    """Where a method is named; the value of an option that happens to be called like one does not count."""
    flags = {f"--{f.name}" for kind in vars(options).values() if dataclasses.is_dataclass(kind)
             for f in dataclasses.fields(kind) if f.type == "bool"}  # fmt: skip
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        is_method = word in list_methods() or _is_path(word)
        if is_method and (not before.startswith("--") or before in flags or "=" in before):
            return place
    return None


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """What was typed after an option, if it was."""
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
