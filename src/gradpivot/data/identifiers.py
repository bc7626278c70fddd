"""Lists of training samples in files: indices or ids, one per line or in a column of a CSV file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError, did_you_mean

__all__ = ["find_records", "read_entries", "read_indices"]

MAX_BYTES = 2**28
"""Refuse larger files; ids of tens of millions of samples fit."""
_COMMENT = re.compile(r"(?:^|\s)#.*")
_DELIMITERS = ",;\t"
_SHOWN = 3
"""Offenders named in an error."""
_TEXT_WIDTH = 40
"""Longest text from a file in an error, in characters."""
_LARGEST = 2**63
"""Indices are 64-bit integers."""


def read_entries(path: str | Path) -> list[str]:
    """The entries of a file, without surrounding white space.

    A text file has one entry per line; blank lines are skipped, and so is everything after a ``#`` at the start of a
    line or after white space. ``FILE:COLUMN`` names a column of a CSV file, separated by commas, semicolons or tabs,
    whose first row holds the names; an empty cell is an empty entry.

    Args:
        path: ``FILE``, or ``FILE:COLUMN``.

    Raises:
        GradPivotError: If the file cannot be read, is not UTF-8 text, or has no such column.
    """
    file, column = _file_and_column(path)
    text = _read(file)
    return _lines(file, text) if column is None else _cells(file, text, column)


def read_indices(path: str | Path) -> list[int]:
    """The indices in a file; see :func:`read_entries`. A line may hold several, separated by white space.

    Raises:
        GradPivotError: If the file cannot be read, or an entry is not an integer.
    """
    words = [word for entry in read_entries(path) for word in entry.split() or [""]]
    try:
        return [_index(word) for word in words]
    except ValueError as error:
        raise GradPivotError(
            f"{path} must hold integers, one per line, but has {error}; if these are ids, also give the id of every "
            f"training sample (--ids FILE)"
        ) from None


def find_records(ids: Iterable[Any], all_ids: Iterable[Any], n_train: int) -> list[int]:
    """The indices of all training samples that have one of these ids.

    Ids are compared as text, without surrounding white space. Several samples may have the same id: all are found.

    Args:
        ids: The ids to look for; repeated ones count once.
        all_ids: The id of each training sample, in the order of the training data. A sample with an empty id cannot be
            looked for.
        n_train: The number of training samples.

    Raises:
        GradPivotError: If there is not one id per training sample, or an id to look for is empty or unknown.
    """
    wanted, known = dict.fromkeys(_as_text(ids)), _as_text(all_ids)
    if len(known) != n_train:
        raise GradPivotError(
            f"there are {len(known):,} ids for {n_train:,} training samples; give one id per training sample, in the "
            f"order of the training data"
        )
    if "" in wanted:
        raise GradPivotError("an id to forget is empty; fill it in, or remove its row")
    found = [position for position, name in enumerate(known) if name in wanted]
    present = {known[position] for position in found}
    if unknown := [name for name in wanted if name not in present]:
        raise GradPivotError(
            f"{len(unknown):,} of {len(wanted):,} ids belong to no training sample: {_listed(unknown)}; correct them, "
            f"or remove them"
        )
    return found


def _as_text(ids: Any) -> list[str]:
    """Ids as text; a single one is a list of one."""
    # A tensor's elements print as tensor(7).
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    several = ids if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else [ids]
    return ["" if name is None else str(name).strip() for name in several]


def _listed(names: Sequence[str]) -> str:
    """The first few names, shortened."""
    more = ", …" if len(names) > _SHOWN else ""
    return ", ".join(map(_quoted, names[:_SHOWN])) + more


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _TEXT_WIDTH else f"{text[:_TEXT_WIDTH]}…")


def _index(word: str) -> int:
    """Parse an index; the error names the word."""
    try:
        index = int(word)
    except ValueError:
        raise ValueError(_quoted(word)) from None
    if abs(index) >= _LARGEST:
        raise ValueError(_quoted(word))
    return index


def _file_and_column(path: str | Path) -> tuple[Path, str | None]:
    """Split ``FILE:COLUMN``; the file's own name may contain colons."""
    parts = str(path).split(":")
    for count in range(len(parts), 0, -1):
        file = Path(":".join(parts[:count]))
        if file.is_file() or file.is_fifo():
            return file, ":".join(parts[count:]) if count < len(parts) else None
    return Path(path), None


def _read(file: Path) -> str:
    """The text of a file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise GradPivotError(f"cannot read {file}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise GradPivotError(f"{file} is larger than {MAX_BYTES:,} bytes; a list of samples is smaller")
    if b"\0" not in content:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    raise GradPivotError(f"{file} is not UTF-8 text; save it as a text or CSV file in UTF-8")


def _lines(file: Path, text: str) -> list[str]:
    """The entries of a text file."""
    if file.suffix.lower() in (".csv", ".tsv"):
        names = max((_header(text, delimiter) for delimiter in _DELIMITERS), key=len)
        if len(names) > 1:
            raise GradPivotError(f"{file} has several columns: {_listed(names)}; name one as FILE:COLUMN")
    # Universal newlines.
    lines = (_COMMENT.sub("", line).strip() for line in io.StringIO(text, newline=None))
    return [line for line in lines if line]


def _cells(file: Path, text: str, column: str) -> list[str]:
    """The entries of a column of a CSV file."""
    headers = {delimiter: _header(text, delimiter) for delimiter in _DELIMITERS}
    delimiter = next((mark for mark, names in headers.items() if column in names), None)
    if delimiter is None:
        names = max(headers.values(), key=len)
        hint = did_you_mean(column, [name[:_TEXT_WIDTH] for name in names[:100]])
        raise GradPivotError(f"{file} has no column {_quoted(column)}{hint} Its columns are {_listed(names)}")
    names = headers[delimiter]
    if names.count(column) > 1:
        raise GradPivotError(f"{file} has {names.count(column)} columns {_quoted(column)}; rename all but one")
    place, rows = names.index(column), _rows(text, delimiter)
    try:
        # A blank line is no row.
        return [row[place].strip() if place < len(row) else "" for row in rows if row][1:]
    except csv.Error as error:
        raise GradPivotError(f"{file}, line {rows.line_num}: {error}; save it as CSV again") from None


def _header(text: str, delimiter: str) -> list[str]:
    """The first row; empty if it cannot be parsed with this delimiter."""
    try:
        return [name.strip() for name in next((row for row in _rows(text, delimiter) if row), [])]
    except csv.Error:
        return []


def _rows(text: str, delimiter: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
