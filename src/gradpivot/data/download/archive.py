"""Reading files out of other people's archives: named members only, into memory, within limits, nothing executed.

Nothing is ever written under a name that an archive chose. Archives that try tricks are refused all the same: names
that climb out of their folder, links in the place of content, sizes beyond what the content can have, a name twice.
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
"""What an archive may hold beside what is wanted of it. A tar's own headers are read whole before anybody can count."""
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError, NotImplementedError,
    UnicodeDecodeError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip
_UNPACKERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_PACKED_TAR = ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\0", ".xz"), (b"BZh", ".bz2"))


def read_members(path: Path, limits: Mapping[str, int], whole: int | None = None) -> dict[str, bytes]:
    """The members of an archive whose last name component is in ``limits``, by that name.

    Zip (and so wheels), tar (plain or packed with gzip, xz or bzip2) and Debian packages; a file that is none of
    these is its own only member.

    Args:
        path: The archive.
        limits: How many bytes each wanted member may have at most.
        whole: How many bytes a packed archive may unpack to in all; what is wanted and 256 MiB if not given.

    Raises:
        GradPivotError: if the archive is damaged, or hostile.
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
        raise GradPivotError(f"{path.name} is damaged or cut short ({_one_line(error)}); get it again") from None
    except OSError as error:
        # gzip and bz2 say "not a gzipped file" or "Invalid data stream" with an OSError that has no number; a zip file
        # whose directory is moved has members before its start, and seeking there is an invalid argument.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise GradPivotError(f"{path.name} is damaged or cut short ({_one_line(error)}); get it again") from None
    raise GradPivotError(
        f"{path.name} is no archive that can be read here; give a zip, wheel, tar or Debian package, or a folder"
    )


def gunzipped(data: bytes, name: str, limit: int) -> bytes:
    """What a gzip file in memory unpacks to, at most ``limit`` bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return _bounded(file, name, limit, None)
    except (OSError, EOFError, zlib.error) as error:
        raise GradPivotError(f"{name} is damaged or cut short ({_one_line(error)}); get it again") from None


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
            # The other methods unpack a whole chunk before anybody can count: a kilobyte may become a gigabyte.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _refused(path, f"{member.filename!r} is packed in a way that wheels and data do not use")
            _check_new(name, found, path)
            _check_size(name, member.file_size, limits[name], path)
            with archive.open(member) as content:
                found[name] = _bounded(content, name, limits[name], path)
    return found


def _from_tar(path: Path, stream: Any, limits: Mapping[str, int], whole: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    bounded: Any = _Counted(stream, whole, path)
    # "r|" reads front to back once: nothing is seeked, so nothing is unpacked twice.
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
                raise GradPivotError(f"{path.name} is cut short in {name}; get it again")
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
    raise GradPivotError(f"{path.name} is no whole Debian package; get it again")


@contextmanager
def _by_dpkg(path: Path) -> Iterator[IO[bytes]]:
    """Ubuntu packs with zstd, which Python cannot read; dpkg-deb unpacks it and runs nothing of the package."""
    if (tool := shutil.which("dpkg-deb")) is None:
        raise GradPivotError(f"{path.name} is packed with zstd and dpkg-deb is not here; unpack it and name the folder")
    with subprocess.Popen([tool, "--fsys-tarfile", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


class _Counted:
    """A stream that refuses to give more than it may: what a bomb unpacks to is never all made."""

    def __init__(self, stream: Any, limit: int, path: Path) -> None:
        self._stream, self._left, self._limit, self._path = stream, limit, limit, path

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise _refused(self._path, f"it unpacks to more than {self._limit:,} bytes")
        return data


class _Part(io.RawIOBase):
    """The next ``size`` bytes of a file as a file of their own."""

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
    """All of a stream, never more than ``limit`` bytes: what a header declares need not be what follows."""
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
        raise GradPivotError(f"{name}{where} is too large: more than the {limit:,} bytes it can have")


def _check_new(name: str, found: Mapping[str, bytes], path: Path) -> None:
    if name in found:
        raise _refused(path, f"it holds {name} twice")


def _checked_name(name: str, path: Path) -> str:
    """The last component of a member's name, if the name stays inside its folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in (parts.parts or ("",))[0]:
        raise _refused(path, f"the name {name!r} leads out of the archive")
    return parts.name


def _refused(path: Path, why: str) -> GradPivotError:
    return GradPivotError(f"{path.name} is refused: {why}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
