"""The one folder that data and weights are kept in, and what makes a file in it trustworthy.

Each entry has a sub-folder with its file and a manifest: where the file came from, its size, its SHA-256. A file is
handed out only if it is the one that the manifest describes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from gradpivot.data.download.catalogue import Entry, entry
from gradpivot.errors import GradPivotError
from gradpivot.runtime import write_text

__all__ = [
    "Manifest", "State", "cached_content", "cached_file", "data_folder", "digest_of", "locked", "read_manifest",
    "state_of", "write_manifest",
]  # fmt: skip

_SCHEMA = "gradpivot.data/1"
_MANIFEST = "manifest.json"
_CHUNK = 2**22
State = Literal["here", "not here", "damaged"]
# Files whose digest was right, by what the file system says of them: a sweep loads the same file again and again.
_trusted: dict[tuple[Any, ...], str] = {}


@dataclass(frozen=True)
class Manifest:
    """What is known of a cached file.

    Attributes:
        name: The entry.
        file: The file's name.
        size: In bytes.
        sha256: Of the file.
        source: Where its content came from, in words.
        licence: Under which terms.
        date: When it was got.
        schema: The form of this record.
    """

    name: str
    file: str
    size: int
    sha256: str
    source: str
    licence: str
    date: str
    schema: str = _SCHEMA


def data_folder() -> Path:
    """The cache: ``GRADPIVOT_DATA``, or ``gradpivot`` in the user's cache directory."""
    if given := os.environ.get("GRADPIVOT_DATA"):
        return Path(given).expanduser()
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given).expanduser() / "gradpivot"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gradpivot"
    if sys.platform == "win32" and (given := os.environ.get("LOCALAPPDATA")):
        return Path(given) / "gradpivot" / "Cache"
    return Path.home() / ".cache" / "gradpivot"


def cached_file(name: str) -> Path:
    """The path of an entry's file, checked: it is there, whole, and what was put there.

    The SHA-256 costs 0.1 s for CIFAR-10 and is computed once a process, as long as the file stays as it is; wrong
    data that look right would cost more. Weights must also have the digest that the catalogue names, because loading
    some of them can run code.

    Args:
        name: An entry of the catalogue.

    Raises:
        GradPivotError: if it is missing or damaged, with the command that gets it.
    """
    known = entry(name)
    path = data_folder() / name / known.file
    manifest = read_manifest(name)
    if manifest is None and not path.exists():
        raise GradPivotError(f"{name} is not on this machine; run 'gradpivot data get {name}'")
    if manifest is None or not path.is_file() or path.stat().st_size != manifest.size:
        raise _damaged(name)
    if _digest_once(path) != _expected(known, manifest):
        raise _damaged(name)
    return path


def cached_content(name: str) -> bytes:
    """The content of an entry's file, read once and then checked, so that what was checked is what is used.

    For files that can run code when they are loaded: between checking a path and opening it the file may change.

    Args:
        name: An entry of the catalogue.

    Raises:
        GradPivotError: if it is missing or damaged, with the command that gets it.
    """
    manifest = read_manifest(name)
    content = cached_file(name).read_bytes()
    if manifest is None or hashlib.sha256(content).hexdigest() != _expected(entry(name), manifest):
        raise _damaged(name)
    return content


def state_of(name: str) -> State:
    """How an entry stands, by its manifest and its file's size: quick, and no proof."""
    path, manifest = data_folder() / name / entry(name).file, read_manifest(name)
    if manifest is None:
        return "damaged" if path.exists() else "not here"
    return "here" if path.is_file() and path.stat().st_size == manifest.size else "damaged"


def read_manifest(name: str) -> Manifest | None:
    """The manifest of an entry; None if there is none that can be read."""
    try:
        content = json.loads((data_folder() / name / _MANIFEST).read_text(encoding="utf-8"))
        manifest = Manifest(**content)
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None
    whole = isinstance(manifest.size, int) and isinstance(manifest.sha256, str)
    return manifest if whole and manifest.schema == _SCHEMA and manifest.name == name else None


def write_manifest(known: Entry, source: str) -> Manifest:
    """Describe the file that was just put into the cache."""
    folder = data_folder() / known.name
    path = folder / known.file
    manifest = Manifest(
        name=known.name,
        file=known.file,
        size=path.stat().st_size,
        sha256=digest_of(path, "sha256"),
        source=source,
        licence=known.licence,
        date=datetime.now(UTC).date().isoformat(),
    )
    write_text(folder / _MANIFEST, json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n")
    return manifest


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a file in hexadecimal."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """One process at a time in a folder. The lock of a killed process is free by itself.

    Args:
        folder: Made if it is not there.
        waiting: Called once if another process has to be waited for.
    """
    with _lock_file(folder) as file:
        if not _try_lock(file):
            waiting()
            while not _try_lock(file):
                time.sleep(0.1)
        yield


def _lock_file(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("a+b")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise GradPivotError(
            f"the cache {data_folder()} cannot be written ({error.strerror}); set GRADPIVOT_DATA to a folder of yours"
        ) from None


def _try_lock(file: IO[bytes]) -> bool:
    """Lock the file until it is closed, if nobody else has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _digest_once(path: Path) -> str:
    facts = path.stat()
    key = (path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
    if key not in _trusted:
        _trusted[key] = digest_of(path, "sha256")
    return _trusted[key]


def _expected(known: Entry, manifest: Manifest) -> str:
    if known.images is None:
        return known.digests[known.file].removeprefix("sha256:")
    return manifest.sha256


def _damaged(name: str) -> GradPivotError:
    return GradPivotError(f"the cached {name} is damaged; run 'gradpivot data get {name}' to get it again")
