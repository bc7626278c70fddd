"""Getting files from where they are: the official source over HTTP, or a registry package with its ordinary client.

Both give a file whose digest has been checked; neither opens it.
"""

from __future__ import annotations

import errno
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gradpivot import __version__
from gradpivot.data.download.cache import digest_of
from gradpivot.data.download.catalogue import Download, Package
from gradpivot.errors import GradPivotError

__all__ = ["Report", "UnreachableError", "download", "package_file"]

Report = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all)."""

TIMEOUT = 10.0
"""Seconds without a byte after which the official source counts as unreachable."""
_CLIENT_TIMEOUT = 1800.0
_PATIENCE = 5.0
_TRIES = 3
_CHUNK = 2**18


class UnreachableError(GradPivotError):
    """A source does not give the file; another one may."""


def download(wanted: Download, folder: Path, report: Report | None = None) -> Path:
    """The official file in ``folder``, its digest checked.

    Bytes go to a ``.part`` file that a later call continues, after a lost connection or a kill.

    Raises:
        UnreachableError: if the server cannot be reached, or what it serves is not the file.
    """
    target = folder / wanted.file
    part = folder / f"{wanted.file}.part"
    if target.exists():
        if _is(target, wanted.digest):
            return target
        target.unlink()
    for _ in range(_TRIES):
        continued = part.exists() and part.stat().st_size > 0
        if not _transfer(wanted, part, report):
            continue
        if _is(part, wanted.digest):
            part.replace(target)
            return target
        part.unlink()
        # A part that was continued may have had a bad beginning; a fresh one that is wrong stays wrong.
        if not continued:
            raise UnreachableError(f"{_host(wanted.url)} serves another {wanted.file} than the known one")
    raise UnreachableError(f"the connection to {_host(wanted.url)} was lost {_TRIES} times")


def _transfer(wanted: Download, part: Path, report: Report | None) -> bool:
    """Append what is missing of a file; whether all of it is there now."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(wanted.url, headers={"User-Agent": f"gradpivot/{__version__}"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if have and not _continues(answer, have):
                have = 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length and length.isdecimal() else None
            if (total or 0) > wanted.limit:
                raise UnreachableError(
                    f"{_host(wanted.url)} serves {total:,} bytes as {wanted.file}: too many to be it"
                )
            with part.open("ab" if have else "wb") as file:
                while chunk := _read(answer):
                    have += len(chunk)
                    if have > wanted.limit:
                        break
                    file.write(chunk)
                    if report is not None and total is not None:
                        report(have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send
            return True
        raise UnreachableError(f"{_host(wanted.url)} answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise UnreachableError(f"{_host(wanted.url)} cannot be reached ({_reason(error.reason)})") from None
    except TimeoutError:
        raise UnreachableError(f"{_host(wanted.url)} does not answer within {TIMEOUT:g} s") from None
    except http.client.HTTPException as error:
        raise UnreachableError(f"{_host(wanted.url)} answers nonsense ({type(error).__name__})") from None
    except ConnectionError:
        return False
    if have > wanted.limit:
        part.unlink()
        raise UnreachableError(
            f"{_host(wanted.url)} serves more than {wanted.limit:,} bytes as {wanted.file}: not it"
        )
    return total is None or have >= total


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Some bytes; none at the end, also where the connection ended too early (the caller counts)."""
    try:
        return answer.read(_CHUNK)
    except http.client.IncompleteRead as error:
        return error.partial
    except (TimeoutError, ConnectionError):
        raise
    except OSError as error:
        # A route that is gone, a broken TLS record: the connection's fault, not the disk's.
        raise ConnectionError(str(error)) from None


def _continues(answer: http.client.HTTPResponse, have: int) -> bool:
    return answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")


@contextmanager
def package_file(package: Package, folder: Path) -> Iterator[Path]:
    """The archive of a registry package, its digest checked, for the length of the block.

    The client only fetches: no script of the package is run, nothing is installed.

    Raises:
        UnreachableError: if the client is missing or fails, or the archive is not the known one.
    """
    words = _client_words(package)
    with tempfile.TemporaryDirectory(prefix=".package-", dir=folder) as scratch:
        _run(words, Path(scratch), package)
        files = [path for path in Path(scratch).iterdir() if path.is_file()]
        if len(files) != 1:
            raise UnreachableError(f"{words[0]} left {len(files)} files for the {package}, not 1")
        if package.digest is not None and not _is(files[0], package.digest):
            raise UnreachableError(f"the {package} is not the known one: its digest is another")
        yield files[0]


def _client_words(package: Package) -> list[str]:
    if package.client == "npm":
        return [_client("npm", package), "pack", "--loglevel=error", "--ignore-scripts", "--fetch-retries=1",
                f"{package.name}@{package.version}"]  # fmt: skip
    if package.client == "apt":
        return [_client("apt-get", package), "download", "-qq", "-o", "Acquire::Retries=1", package.name]
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_client("pip", package)]
    # Wheels only: of a source package pip would run the setup code to learn its name.
    return [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "1",
            "--disable-pip-version-check", f"{package.name}=={package.version}"]  # fmt: skip


def _client(program: str, package: Package) -> str:
    if (path := shutil.which(program)) is None:
        raise UnreachableError(f"the {package} needs the program {program}, which is not installed")
    return path


def _run(words: list[str], folder: Path, package: Package) -> None:
    """Run a client; end it with us, whatever ends us."""
    with subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            _, told = process.communicate(timeout=_CLIENT_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise UnreachableError(
                f"the {package} did not come within {_CLIENT_TIMEOUT / 60:.0f} minutes"
            ) from None
        finally:
            _end(process)
    if process.returncode and ("ENOSPC" in told or os.strerror(errno.ENOSPC) in told):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if process.returncode:
        raise UnreachableError(f"the {package} could not be fetched ({_last_line(told)})")


def _end(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, and make it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is(path: Path, digest: str) -> bool:
    algorithm, _, expected = digest.partition(":")
    return digest_of(path, algorithm) == expected


def _last_line(told: str) -> str:
    """The line of a client's complaint that says most: the first error, or the last line."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm err", "npm error"))]
    return (errors or lines or ["it gave no reason"])[-1 if not errors else 0][:200]


def _host(url: str) -> str:
    return url.split("/")[2].rpartition("@")[2]


def _reason(reason: object) -> str:
    return str(getattr(reason, "strerror", None) or reason)
