"""Kill commands with SIGKILL at random moments, repeat them until they are done, and compare the result.

    python -m benchmarks.reliability [--kills 100] [--only sweep unlearn trace get] [--seed 0] [--json]

Each command runs once undisturbed. Then it is started in a new folder and killed, again and again, until an attempt
finishes; then in the next folder, until it has had its share of the kills. The moment of a kill is random: four times
in five within half of the undisturbed time after the attempt's first write, otherwise before it. After each kill,
everything recorded before must still be there, byte for byte. At the end the numbers, weights and file names must be
those of the undisturbed run. ``data get`` downloads made images from a server on this machine.

An attempt is a fork of a process that has imported the libraries, since most of a short run is its start.
It prints the commit and the counts, as in docs/reliability.md. Exit status 1 if anything differs. Half an hour for 100
kills on one quiet core.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401 - so that attempts start at once
import numpy as np
import sklearn.datasets  # noqa: F401

import gradpivot.api.verbs
import gradpivot.sweep.work
from gradpivot.cli import main as gradpivot
from gradpivot.data.download.catalogue import ENTRIES, Download, ImageFiles

SHARES = {"get": 34, "unlearn": 26, "trace": 20, "sweep": 20}
"""Of a hundred kills: fewer for slower commands."""
MOST_ATTEMPTS = 60
"""A command that is killed so often in one folder without an end does not advance."""
RECIPE = """
schema: gradpivot.recipe/1
title: Four short runs
problem: digits
forget: [{classes: 3}]
seeds: 1
protocols:
  clean:
    settings: {batch_size: 8, epochs: 2}
    series:
      GA: {method: ga, lr: [0.0001, 0.001]}
      WS: {method: ws, lr: [0.001], forget_weight: [0.1, 0.5]}
"""
FORGET = ["--classes", "3", "--batch-size", "8"]
TIMES = ("seconds", "evaluation_seconds", "date", "timing", "damaged_records_redone", "provenance", "telemetry")
"""Keys whose values differ from run to run."""


@dataclass(frozen=True)
class Command:
    """A command to kill.

    Attributes:
        name: Its name in the table.
        run: Runs it with this output folder.
        records: Patterns of files that must never change once they are there.
        numbers: Patterns of JSON files to compare without times and provenance.
        contents: Patterns of files to compare as they are.
    """

    name: str
    run: Callable[[str], int]
    records: tuple[str, ...]
    numbers: tuple[str, ...]
    contents: tuple[str, ...] = ()


@dataclass
class Count:
    """What happened to a command.

    Attributes:
        command: The command.
        kills: Number of kills.
        folders: Number of folders in which it ended.
        most_attempts: Most attempts that one folder took.
        lost: Number of records that were lost or changed.
        different: Number of results that differ from the undisturbed run's.
        left: Number of files that an undisturbed run does not leave.
        notes: What else went wrong.
    """

    command: str
    kills: int = 0
    folders: int = 0
    most_attempts: int = 0
    lost: int = 0
    different: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether everything was as in the undisturbed run."""
        return not (self.lost or self.different or self.left or self.notes)


def commands(place: Path, url: str) -> dict[str, Command]:
    """The commands, by name."""
    recipe = place / "recipe.yaml"
    recipe.write_text(RECIPE)
    weights = ("**/*.safetensors",)

    def words(*given: str) -> Callable[[str], int]:
        return lambda folder: gradpivot([*given, folder])

    return {
        "sweep": Command(
            "sweep", words("sweep", str(recipe), "--jobs", "1", "--store"), ("runs/*/*.json", "originals/*.sha256"),
            ("runs/*/*.json",), weights,
        ),
        "unlearn": Command(
            "unlearn", words("unlearn", "cup", *FORGET, "--epochs", "3", "--out"), ("metrics.json",),
            ("metrics.json", "split.json"), (*weights, "history.csv", "config.yaml"),
        ),
        "trace": Command(
            "trace", words("trace", "ga", *FORGET, "--epochs", "3", "--values", "0.0001", "0.001", "--out"),
            ("runs/*/*.json",), ("runs/*/*.json", "results.json"), weights,
        ),
        "get": Command("data get", lambda folder: get(url, folder), (), ("mnist/manifest.json",), weights),
    }  # fmt: skip


def start(command: Command, folder: Path) -> BaseProcess:
    """Start it with its output in ``folder``."""
    process = get_context("fork").Process(target=run, args=(command, folder))
    process.start()
    return process


def run(command: Command, folder: Path) -> None:
    """Run it in this process, and exit with its status."""
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    sys.exit(command.run(str(folder)))


def undisturbed(command: Command, folder: Path) -> tuple[float, float, int]:
    """Run it once; the seconds until its first write and until its end, and its exit status."""
    started, first = time.monotonic(), None
    process = start(command, folder)
    while process.is_alive():
        first = first or (has_written(folder, 0) and time.monotonic() - started) or None
        time.sleep(0.01)
    if process.exitcode not in (0, 4) or first is None:  # 4: the run ended short of its degree
        raise SystemExit((folder.parent / f"{folder.name}.log").read_text())
    return first, time.monotonic() - started, process.exitcode


def has_written(folder: Path, since: float) -> bool:
    """Whether the attempt that began at that time has written part of its result."""
    idle = (".lock", ".holder.json", "store.json", "worker.log")
    return any(
        path.name not in idle and not path.name.startswith("index.sqlite") and modified(path) > since
        for path in folder.rglob("*")
        if path.is_file()
    )


def modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def recorded(command: Command, folder: Path) -> dict[str, bytes]:
    """The content of everything that the command has recorded."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in files(folder, command.records)}


def result(command: Command, folder: Path) -> dict[str, Any]:
    """Everything that must equal the undisturbed run's."""
    found: dict[str, Any] = {}
    for path in files(folder, command.numbers):
        found[str(path.relative_to(folder))] = without_times(json.loads(path.read_text(encoding="utf-8")))
    for path in files(folder, command.contents):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        # The checksum of a record covers its times.
        return {name: without_times(part) for name, part in value.items() if name not in (*TIMES, "sha256")}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def names(folder: Path) -> set[str]:
    """All files but the lock, the log and SQLite's own."""
    own = (".lock", "worker.log", "index.sqlite-wal", "index.sqlite-shm")
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name not in own}


def disturbed(command: Command, kills: int, place: Path, draw: random.Random, tell: Callable[[str], None]) -> Count:
    """Kill the command so often, over as many folders as it takes."""
    whole = place / "whole"
    first, end, expected_status = undisturbed(command, whole)
    tell(f"{command.name}: {end:.1f} s undisturbed")
    expected, expected_names = result(command, whole), names(whole)
    count = Count(command.name)
    while count.kills < kills and not count.notes:
        folder, attempts, status = place / f"folder-{count.folders}", 0, None
        before: dict[str, bytes] = {}
        while status is None and attempts < MOST_ATTEMPTS:
            early, seconds = draw.random() < 0.2, draw.uniform(0, first)
            if not early:
                seconds = draw.uniform(0, (end - first) / 2)
            status = one_attempt(command, folder, seconds if count.kills < kills else None, early)
            attempts, count.kills = attempts + 1, count.kills + (status is None)
            now = recorded(command, folder)
            count.lost += sum(now.get(name) != content for name, content in before.items())
            before = now
        if status != expected_status:
            log = (place / f"{folder.name}.log").read_text()[-500:]
            count.notes.append(f"exit status {status} instead of {expected_status} after {attempts} attempts: {log}")
        count.folders, count.most_attempts = count.folders + 1, max(count.most_attempts, attempts)
        count.different += result(command, folder) != expected
        if left := names(folder) - expected_names:
            count.left += len(left)
            tell(f"{command.name}: left over {sorted(left)}")
        tell(f"{command.name}: {count.kills} kills, done in {attempts} attempts")
    return count


def one_attempt(command: Command, folder: Path, seconds: float | None, early: bool) -> int | None:
    """Start it, and kill it some seconds after its start or its first write; returns its exit status if it ends."""
    began = time.time()
    process = start(command, folder)
    while seconds is not None and not early and process.is_alive() and not has_written(folder, began):
        time.sleep(0.01)
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


class Slow(BaseHTTPRequestHandler):
    """Serves the made files at 2 MB/s, whole or from a byte on."""

    def do_GET(self) -> None:
        content, asked = made()[self.path.rpartition("/")[2]], self.headers.get("Range")
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if begin >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        for position in range(begin, len(content), 20_000):
            try:
                self.wfile.write(content[position : position + 20_000])
            except OSError:  # the client was killed
                return
            time.sleep(0.01)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    """Serve the made files; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def plain(images: int = 2000) -> dict[str, bytes]:
    """Made images and labels in MNIST's files, without compression."""
    random_bytes, found = np.random.default_rng(0), {}
    for part in ("train", "t10k"):
        pictures = random_bytes.integers(0, 256, (images, 28, 28), dtype=np.uint8)
        head = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in pictures.shape)
        found[f"{part}-images-idx3-ubyte"] = head + pictures.tobytes()
        labels = bytes(i % 10 for i in range(images))
        found[f"{part}-labels-idx1-ubyte"] = b"\0\0\x08\x01" + images.to_bytes(4, "big") + labels
    return found


@cache
def made() -> dict[str, bytes]:
    """The served files."""
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in plain().items()}


def get(url: str, folder: str) -> int:
    """``gradpivot data get mnist`` with a catalogue in which MNIST is the made files at ``url``."""
    os.environ["GRADPIVOT_DATA"] = folder
    digests = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in plain().items()}
    official = tuple(
        Download(f"{url}/{name}", f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
        for name, content in made().items()
    )
    shape = ImageFiles((1, 28, 28), 2000, 2000)
    ENTRIES["mnist"] = replace(ENTRIES["mnist"], digests=digests, official=official, package=None, images=shape)
    return gradpivot(["data", "get", "mnist"])


def table(counts: list[Count]) -> str:
    """The counts, aligned."""
    columns = ("kills", "folders", "lost", "different", "left")
    rows = [(count.command, *(getattr(count, name) for name in columns)) for count in counts]
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, len(columns) + 1))))
    return "\n".join("".join(f"{cell!s:<10}" for cell in row).rstrip() for row in (("", *columns), *rows))


def commit() -> str:
    """The commit of this file's repository; with + if something in it differs."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", nargs="+", choices=list(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    draw, counts = random.Random(chosen.seed), []
    with tempfile.TemporaryDirectory() as folder, served() as url:
        known = commands(Path(folder), url)
        wanted = chosen.only or list(SHARES)
        left = chosen.kills
        for number, name in enumerate(wanted):
            place = Path(folder) / name
            place.mkdir()
            share = round(left * SHARES[name] / sum(SHARES[other] for other in wanted[number:]))
            left -= share
            counts.append(disturbed(known[name], share, place, draw, lambda line: print(line, file=sys.stderr)))
    shown = f"commit {commit()}, seed {chosen.seed}\n{table(counts)}"
    print(json.dumps([asdict(count) for count in counts]) if chosen.json else shown)
    for note in (note for count in counts for note in count.notes):
        print(note, file=sys.stderr)
    return 0 if all(count.sound for count in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
