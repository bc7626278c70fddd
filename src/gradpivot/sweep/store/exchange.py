"""Export and import of finished runs as JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradpivot.errors import GradPivotError
from gradpivot.results import Record
from gradpivot.runtime import parse_json, write_text
from gradpivot.sweep.store.records import seal, unsealed

__all__ = ["read_exported", "write_exported"]


def write_exported(path: str | Path, records: Sequence[Record]) -> None:
    """Write one sealed line per run."""
    lines = [json.dumps(seal(r.key, r.to_dict()), sort_keys=True, ensure_ascii=False) for r in records]
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_exported(path: Path) -> Iterator[Record]:
    """Read the runs of an exported file.

    Raises:
        GradPivotError: If a line is invalid; the message has its number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GradPivotError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(f"{path} is not UTF-8 text; give a file written by 'gradpivot store export'") from None
    # Not splitlines: JSON strings may contain Unicode line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = Record.from_dict(unsealed(parse_json(line)))
            # The key becomes a file name.
            if not re.fullmatch(r"[0-9a-f]{8,64}", record.key):
                raise ValueError(f"its key is {record.key!r}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GradPivotError(
                f"{path}, line {number} is not an exported run ({error}); nothing was imported"
            ) from None
        yield record
