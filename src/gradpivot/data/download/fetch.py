"""Getting files from where they are: the official source over HTTP, or a registry package with its ordinary client.

Both give a file whose digest has been checked; neither opens it. pooch checks official files and puts them under their
names. Its own downloader can neither continue a file nor stop at a size, so it is given one that can.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pooch
import requests
import urllib3

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
_CHUNK = 20_000


class UnreachableError(GradPivotError):
    """A source does not give the file; another one may."""


def download(wanted: Download, folder: Path, report: Report | None = None) -> Path:
    """The official file in ``folder``, its digest checked.

    Bytes go to a ``.part`` file that a later call continues, after a lost connection or a kill.

    Raises:
        UnreachableError: if the server cannot be reached, or what it serves is not the file.
    """
    part = folder / f"{wanted.file}.part"
    continued = part.exists()

    def transfer(url: str, target: str, _: object) -> None:
        if not any(_transfer(wanted, part, report) for _ in range(_TRIES)):
            raise UnreachableError(f"the connection to {_host(url)} was lost {_TRIES} times")
        part.replace(target)

    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(pooch.retrieve(wanted.url, wanted.digest, wanted.file, folder, downloader=transfer))
    except GradPivotError:
        raise
    except ValueError:  # another digest
        if continued:  # a part with a bad beginning; a fresh one that is wrong stays wrong
            part.unlink(missing_ok=True)
            return download(wanted, folder, report)
        raise UnreachableError(f"{_host(wanted.url)} serves another {wanted.file} than the known one") from None


def _transfer(wanted: Download, part: Path, report: Report | None) -> bool:
    """Append what is missing of a file; whether all of it is there now."""
    host, have, total = _host(wanted.url), part.stat().st_size if part.exists() else 0, None
    headers = {"User-Agent": f"gradpivot/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with requests.get(wanted.url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:  # nothing is left to send
                return True
            if not answer.ok:
                raise UnreachableError(f"{host} answers {answer.status_code} {answer.reason}")
            have = have if answer.status_code == 206 else 0
            total = have + int(answer.headers.get("Content-Length", 0))
            with part.open("ab" if have else "wb") as file:
                # As they are served: some servers call a .gz file's own packing an encoding of theirs.
                for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                    have += len(chunk)
                    if max(have, total) > wanted.limit:
                        break
                    file.write(chunk)
                    if report is not None and total:
                        report(have, total)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        if total is not None:
            return False
        if isinstance(error, requests.Timeout):
            raise UnreachableError(f"{host} does not answer within {TIMEOUT:g} s") from None
        raise UnreachableError(f"{host} cannot be reached ({_reason(error)})") from None
    if max(have, total) > wanted.limit:
        part.unlink()
        raise UnreachableError(f"{host} serves {max(have, total):,} bytes as {wanted.file}: too many to be it")
    return True


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
            raise UnreachableError(f"the {package} did not come within {_CLIENT_TIMEOUT / 60:.0f} minutes") from None
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


def _reason(error: BaseException) -> str:
    """The innermost cause, which is the system's; what is around it names our own objects."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
