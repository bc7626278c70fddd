"""Cache of data and weights.

Each entry has a folder with its file and a manifest: source, size, SHA-256. A file is used only if it matches its
manifest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import platformdirs
from filelock import FileLock, Timeout

from gradpivot.data.download.catalogue import Entry, entry
from gradpivot.errors import GradPivotError
from gradpivot.runtime import parse_json, write_text

__all__ = [
    "Manifest", "State", "cached_content", "cached_file", "data_folder", "digest_of", "identity_of", "locked",
    "read_manifest", "state_of", "write_manifest",
]  # fmt: skip

MANIFEST_SCHEMA = "gradpivot.data/1"
_MANIFEST = "manifest.json"
State = Literal["here", "not here", "damaged"]
# Digests of files by path, size and times: a sweep loads the same file many times.
_digests: dict[tuple[Any, ...], str] = {}


@dataclass(frozen=True)
class Manifest:
    """Description of a cached file.

    Attributes:
        name: Name of the catalogue entry.
        file: File name.
        size: Size in bytes.
        sha256: SHA-256 of the file.
        source: Origin of the content.
        licence: Licence of the content.
        date: Date of the download.
        schema: Schema of this manifest.
    """

    name: str
    file: str
    size: int
    sha256: str
    source: str
    licence: str
    date: str
    schema: str = MANIFEST_SCHEMA


def data_folder() -> Path:
    """The cache folder: ``GRADPIVOT_DATA``, or ``gradpivot`` in the user's cache directory."""
    if given := os.environ.get("GRADPIVOT_DATA"):
        return Path(given).expanduser()
    return Path(platformdirs.user_cache_dir("gradpivot", appauthor=False)).expanduser()


def cached_file(name: str) -> Path:
    """Path of an entry's file after verifying its size and SHA-256.

    The SHA-256 (0.1 s for CIFAR-10) is computed once per process unless the file changes. Weights must match the
    digest in the catalogue, because loading some of them can run code; images are compared with it when they are read.

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
    """Read an entry's file and verify the bytes read.

    For files that can run code when loaded: a file may change between verifying its path and opening it.

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
    """Whether an entry is cached, judged by manifest and file size only; fast, but no verification."""
    path, manifest = data_folder() / name / entry(name).file, read_manifest(name)
    if manifest is None:
        return "damaged" if path.exists() else "not here"
    return "here" if path.is_file() and path.stat().st_size == manifest.size else "damaged"


def read_manifest(name: str) -> Manifest | None:
    """The manifest of an entry; None if it is missing or invalid."""
    try:
        content = parse_json((data_folder() / name / _MANIFEST).read_text(encoding="utf-8"))
        manifest = Manifest(**content)
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None
    whole = isinstance(manifest.size, int) and isinstance(manifest.sha256, str)
    return manifest if whole and manifest.schema == MANIFEST_SCHEMA and manifest.name == name else None


def write_manifest(known: Entry, source: str) -> Manifest:
    """Write the manifest of a file just added to the cache."""
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
    """Digest of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock a folder for this process. The lock of a killed process is released automatically.

    Args:
        folder: Created if it does not exist.
        waiting: Called once if another process holds the lock.
    """
    lock = FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire(poll_interval=0.1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise GradPivotError(
            f"cannot write to the cache {data_folder()} ({error.strerror}); set GRADPIVOT_DATA to a writable folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


def identity_of(path: Path) -> tuple[Any, ...]:
    """Path, size, times and inode: equal as long as nobody writes to the file."""
    facts = path.stat()
    return path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def _digest_once(path: Path) -> str:
    key = identity_of(path)
    if key not in _digests:
        _digests[key] = digest_of(path, "sha256")
    return _digests[key]


def _expected(known: Entry, manifest: Manifest) -> str:
    if known.images is None:
        return known.digests[known.file].removeprefix("sha256:")
    return manifest.sha256


def _damaged(name: str) -> GradPivotError:
    return GradPivotError(f"the cached {name} is damaged; run 'gradpivot data get {name}' to download it again")
