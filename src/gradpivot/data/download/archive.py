"""Read named members of untrusted archives into memory, within size limits, without executing anything.

Never writes a file under a name from the archive. Refuses path traversal, links, oversized members and duplicate names.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gradpivot.errors import GradPivotError

__all__ = ["gunzipped", "read_members"]

_UNPACK_CHUNK = 2**20
_MEMBERS = 10_000
_SLACK = 2**28
"""Bytes an archive may contain besides the wanted members. tarfile reads headers whole before they can be counted."""
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError, NotImplementedError,
    UnicodeDecodeError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip
_UNPACKERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_PACKED_TAR = ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\0", ".xz"), (b"BZh", ".bz2"))


def read_members(path: Path, limits: Mapping[str, int], whole: int | None = None) -> dict[str, bytes]:
    """Read the members of an archive whose file name is in ``limits``, by that name.

    Reads zip files (including wheels), tar files (plain or compressed with gzip, xz or bzip2) and Debian packages. A
    plain file named in ``limits`` is its own only member.

    Args:
        path: The archive.
        limits: Maximum size of each wanted member in bytes.
        whole: Maximum decompressed size of the archive; by default the sum of ``limits`` plus 256 MiB.

    Raises:
        GradPivotError: if the archive is damaged or unsafe.
    """
    whole = sum(limits.values()) + _SLACK if whole is None else whole
    try:
        with path.open("rb") as file:
            head = file.read(512)
            file.seek(0)
            if zipfile.is_zipfile(file) and path.name not in limits:
                return _from_zip(path, file, limits)
            file.seek(0)
            if head.startswith(b"!<arch>\n"):
                return _from_deb(path, file, limits, whole)
            if path.name in limits:
                return {path.name: _bounded(file, path.name, limits[path.name], path)}
            for magic, ending in _PACKED_TAR:
                if head.startswith(magic):
                    return _from_tar(path, _UNPACKERS[ending](file), limits, whole)
            if head[257:262] == b"ustar":
                return _from_tar(path, file, limits, whole)
    except GradPivotError:
        raise
    except FileNotFoundError:
        raise GradPivotError(f"there is no file {path}") from None
    except _BROKEN as error:
        raise GradPivotError(f"{path.name} is damaged or truncated ({_one_line(error)}); download it again") from None
    except OSError as error:
        # gzip and bz2 report damage as an OSError without errno. A zip file with a shifted directory has members
        # before its start; seeking there raises EINVAL.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise GradPivotError(f"{path.name} is damaged or truncated ({_one_line(error)}); download it again") from None
    raise GradPivotError(
        f"{path.name} is not a supported archive; pass a zip, wheel, tar or Debian package, or a folder"
    )


def gunzipped(data: bytes, name: str, limit: int) -> bytes:
    """Decompress a gzip file in memory, to at most ``limit`` bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return _bounded(file, name, limit, None)
    except (OSError, EOFError, zlib.error) as error:
        raise GradPivotError(f"{name} is damaged or truncated ({_one_line(error)}); download it again") from None


def _from_zip(path: Path, file: IO[bytes], limits: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(file) as archive:
        if len(archive.infolist()) > _MEMBERS:
            raise _refused(path, f"it has more than {_MEMBERS:,} members")
        for member in archive.infolist():
            name = _checked_name(member.filename, path)
            if name not in limits or member.is_dir():
                continue
            kind = member.external_attr >> 16
            if stat.S_IFMT(kind) not in (0, stat.S_IFREG):
                raise _refused(path, f"{member.filename!r} is a link or a device, not a file")
            if member.flag_bits & 1:
                raise _refused(path, f"{member.filename!r} is encrypted")
            # Other methods decompress whole chunks at once: a kilobyte may become a gigabyte.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _refused(path, f"{member.filename!r} uses an unsupported compression method")
            _check_new(name, found, path)
            _check_size(name, member.file_size, limits[name], path)
            with archive.open(member) as content:
                found[name] = _bounded(content, name, limits[name], path)
    return found


def _from_tar(path: Path, stream: Any, limits: Mapping[str, int], whole: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    bounded: Any = _Counted(stream, whole, path)
    # "r|" streams without seeking, so nothing is decompressed twice.
    with tarfile.open(fileobj=bounded, mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= _MEMBERS:
                raise _refused(path, f"it has more than {_MEMBERS:,} members")
            name = _checked_name(member.name, path)
            if name not in limits or member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _refused(path, f"{member.name!r} is a link or a device, not a file")
            _check_new(name, found, path)
            _check_size(name, member.size, limits[name], path)
            content = archive.extractfile(member)
            assert content is not None
            found[name] = _bounded(content, name, limits[name], path)
            if len(found[name]) != member.size:
                raise GradPivotError(f"{path.name} is truncated in {name}; download it again")
    return found


def _from_deb(path: Path, file: IO[bytes], limits: Mapping[str, int], whole: int) -> dict[str, bytes]:
    """The data part of a Debian package: an ar archive of two tar archives."""
    file.seek(8)
    while len(header := file.read(60)) == 60:
        if header[58:60] != b"`\n":
            break
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if size < 0:
            break
        if name in ("data.tar", "data.tar.gz", "data.tar.xz", "data.tar.bz2"):
            part = _Part(file, size)
            unpack = _UNPACKERS.get(name.removeprefix("data.tar"))
            return _from_tar(path, part if unpack is None else unpack(part), limits, whole)
        if name == "data.tar.zst":
            with _by_dpkg(path) as stream:
                return _from_tar(path, stream, limits, whole)
        file.seek(size + size % 2, 1)
    raise GradPivotError(f"{path.name} is not a complete Debian package; download it again")


@contextmanager
def _by_dpkg(path: Path) -> Iterator[IO[bytes]]:
    """Decompress zstd, which Ubuntu uses and Python cannot read, with dpkg-deb; it runs no code of the package."""
    if (tool := shutil.which("dpkg-deb")) is None:
        raise GradPivotError(f"{path.name} needs dpkg-deb, which is not installed; unpack it and pass the folder")
    with subprocess.Popen([tool, "--fsys-tarfile", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


class _Counted:
    """A stream that fails beyond ``limit`` bytes, so that a decompression bomb is never fully expanded."""

    def __init__(self, stream: Any, limit: int, path: Path) -> None:
        self._stream, self._left, self._limit, self._path = stream, limit, limit, path

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise _refused(self._path, f"it unpacks to more than {self._limit:,} bytes")
        return data


class _Part(io.RawIOBase):
    """The next ``size`` bytes of a file as a file object."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _bounded(stream: Any, name: str, limit: int, path: Path | None) -> bytes:
    """Read a whole stream of at most ``limit`` bytes; the size in the header may be false."""
    parts, left = [], limit
    while data := stream.read(min(_UNPACK_CHUNK, left + 1)):
        left -= len(data)
        if left < 0:
            _check_size(name, limit + 1, limit, path)
        parts.append(data)
    return b"".join(parts)


def _check_size(name: str, size: int, limit: int, path: Path | None) -> None:
    if size > limit:
        where = f" in {path.name}" if path is not None and path.name != name else ""
        raise GradPivotError(f"{name}{where} is too large; the limit is {limit:,} bytes")


def _check_new(name: str, found: Mapping[str, bytes], path: Path) -> None:
    if name in found:
        raise _refused(path, f"it contains {name} twice")


def _checked_name(name: str, path: Path) -> str:
    """The file name of a member; refuses paths that leave the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in (parts.parts or ("",))[0]:
        raise _refused(path, f"the path {name!r} leaves the archive")
    return parts.name


def _refused(path: Path, why: str) -> GradPivotError:
    return GradPivotError(f"{path.name} is refused: {why}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
