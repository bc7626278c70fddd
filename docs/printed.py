"""Bring what the pages print up to date: run their commands on the digits again, and write down what these say now.

    python docs/printed.py [docs/cli.md …]

Only ``unlearn`` and ``rerun`` on the embedded digits, where a page shows scores below the command. Some five minutes of
one core; what a command says depends on the machine in its last digits, and in its seconds.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
FIRST = ("quickstart.md",)
"""Pages whose runs others go back to."""
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
SCORES = re.compile(r"(RA|before  RA|The same scores|.* diverged at step) ?")


def main() -> None:
    """Rewrite the pages that are named, or all."""
    pages = [Path(name).absolute() for name in sys.argv[1:]] or sorted(
        (page for page in HERE.rglob("*.md") if "_build" not in page.parts and "results" not in page.parts),
        key=lambda page: (page.name not in FIRST, str(page)),
    )
    with tempfile.TemporaryDirectory() as scratch:
        for page in pages:
            text = page.read_text(encoding="utf-8")
            new = BLOCK.sub(lambda block: renewed(block.group(), Path(scratch)), text)
            if new != text:
                page.write_text(new, encoding="utf-8")
                sys.stderr.write(f"{page.name} has changed\n")


def renewed(block: str, scratch: Path) -> str:
    """A block with what its commands print now."""
    if not block.startswith("$ "):
        return block
    lines: list[str] = []
    for command, output in commands(block.splitlines()):
        wanted = is_ours(command) and any(map(SCORES.match, output))
        lines += [command, *((wanted and said_by(command.removeprefix("$ "), scratch)) or output)]
    return "\n".join([*lines, ""])


def commands(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(Command, what is printed below it)."""
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start], lines[start + 1 : end]


def is_ours(command: str) -> bool:
    """Whether it is a run on the digits that this can repeat."""
    return command.startswith(("$ gradpivot unlearn", "$ gradpivot rerun")) and not any(
        foreign in command for foreign in ("--problem", "--config", "&", "#", "killed")
    )


def said_by(command: str, scratch: Path) -> list[str]:
    """What a command prints; nothing if it cannot be run here."""
    words = shlex.split(command)
    if "unlearn" in words and "--out" in words:
        shutil.rmtree(scratch / words[words.index("--out") + 1], ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(HERE / "examples"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=scratch, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode not in (0, 3, 4):
        sys.stderr.write(f"left as it is: {command}: {ran.stderr.strip()}\n")
        return []
    told = [line for line in ran.stderr.splitlines() if line.startswith("gradpivot: ")]
    return [*ran.stdout.splitlines(), *told]


if __name__ == "__main__":
    main()
