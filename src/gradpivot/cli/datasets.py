"""The data command: download, list and check datasets and weights."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from gradpivot.cli.console import bar, say, say_json, wants_progress
from gradpivot.cli.dispatch import run
from gradpivot.cli.interrupt import terminating
from gradpivot.cli.options.datasets import DataCheckOptions, DataGetOptions, DataListOptions
from gradpivot.data import ENTRIES, Entry, data_folder, entry, read_manifest, state_of
from gradpivot.errors import GradPivotError
from gradpivot.runtime import duration

__all__: list[str] = []


@run.register
def _(chosen: DataGetOptions) -> int:
    """Download every named entry; continues after a failure."""
    names = list(ENTRIES) if "all" in chosen.names else list(dict.fromkeys(chosen.names))
    if not names:
        raise GradPivotError(f"name what to download: all, or any of {', '.join(ENTRIES)}")
    for name in names:
        entry(name)
    if chosen.given is not None and len(names) > 1:
        raise GradPivotError("--from works for one entry only")
    failed: list[str] = []
    with terminating():
        for name in names:
            try:
                _get(name, chosen)
            except GradPivotError as error:
                if len(names) == 1:
                    raise
                failed.append(name)
                _note(str(error))
    if failed:
        raise GradPivotError(f"{len(failed)} of {len(names)} failed: {', '.join(failed)}")
    return 0


def _get(name: str, chosen: DataGetOptions) -> None:
    from gradpivot.data import get

    began = time.monotonic()
    with bar(f"Getting {name}", wants_progress(False), in_bytes=True) as report:
        manifest, was_here = get(name, chosen.source, chosen.given, report, _note)
    if was_here:
        say(f"{name} is already cached, {_size(manifest.size)}")
    else:
        took = duration(time.monotonic() - began)
        say(f"{name} is cached: {_size(manifest.size)} from {manifest.source}, checked, in {took}")


@run.register
def _(chosen: DataListOptions) -> int:
    if chosen.json:
        say_json(json.dumps([_describe(known) for known in ENTRIES.values()], indent=2, ensure_ascii=False))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "state", "size"):
        table.add_column(heading, no_wrap=True)
    for heading in ("source", "licence"):
        table.add_column(heading, overflow="fold")
    for known in ENTRIES.values():
        manifest = read_manifest(known.name)
        size, source = (_size(manifest.size), manifest.source) if manifest else ("", _sources(known))
        table.add_row(known.name, state_of(known.name), size, source, known.licence)
    say(table, f"The cache is {data_folder()}. Download one: gradpivot data get cifar10")
    return 0


@run.register
def _(chosen: DataCheckOptions) -> int:
    from gradpivot.data import check

    names = chosen.names or tuple(name for name in ENTRIES if state_of(name) != "not here")
    damaged = []
    for name in names:
        entry(name)
        if state_of(name) == "not here":
            raise GradPivotError(f"{name} is not on this machine; run 'gradpivot data get {name}'")
        try:
            check(name)
        except GradPivotError as error:
            damaged.append(name)
            _note(str(error))
        else:
            say(f"{name} is intact")
    if damaged:
        raise GradPivotError(f"damaged: {', '.join(damaged)}; run 'gradpivot data get {' '.join(damaged)}'")
    if not names:
        say("Nothing is cached yet. Download a dataset: gradpivot data get cifar10")
    return 0


def _describe(known: Entry) -> dict[str, Any]:
    manifest = read_manifest(known.name)
    return {
        "name": known.name,
        "what": known.title,
        "state": state_of(known.name),
        "size": manifest.size if manifest else None,
        "source": manifest.source if manifest else _sources(known),
        "licence": known.licence,
        "citation": known.citation,
        "manifest": asdict(manifest) if manifest else None,
    }


def _sources(known: Entry) -> str:
    official = known.official[0].url.split("/")[2] if known.official else None
    return ", ".join(str(one) for one in (official, known.package) if one is not None)


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


def _note(line: str) -> None:
    """Print a note on standard error."""
    sys.stderr.write(f"{' '.join(line.split())}\n")
    sys.stderr.flush()
