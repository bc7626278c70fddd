"""The commands methods and completion."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from gradpivot.cli import options
from gradpivot.cli.console import say, say_json
from gradpivot.cli.dispatch import run
from gradpivot.cli.parser import print_completion

__all__: list[str] = []


@run.register
def _(chosen: options.MethodsOptions) -> int:
    from gradpivot.methods import list_methods, method_class

    if ":" in chosen.pattern:
        method_class(chosen.pattern)
    found = [method_class(name) for name in list_methods(chosen.pattern)]
    if not found:
        method_class(chosen.pattern)  # Raises and suggests the nearest name.
    if chosen.json:
        say_json(json.dumps([_describe(method) for method in found], indent=2))
        return 0
    from rich.table import Table

    table = Table("method", "what it does", "knob", box=None, pad_edge=False)
    for method in found:
        table.add_row(method.name, (method.__doc__ or "").splitlines()[0], method.knob or "")
    say(table, "Settings of a method: gradpivot unlearn METHOD --help-all")
    return 0


@run.register
def _(chosen: options.CompletionOptions) -> int:
    print_completion(chosen.shell)
    return 0


def _describe(method: Any) -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "summary": (method.__doc__ or "").splitlines()[0],
        "knob": method.knob,
        "defaults": {f.name: f.default for f in dataclasses.fields(method)},
        "paper": dict(method.paper),
        "paper_space": {name: list(values) for name, values in method.paper_space.items()},
    }
