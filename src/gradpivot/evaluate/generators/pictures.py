"""A generator's samples as one image. No torch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradpivot.runtime import checked, replacing

__all__ = ["Pictures"]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """A grid of samples: one row per class, forgotten classes first, and one column per noise seed.

    Attributes:
        png: The grid as a base64-encoded PNG file.
        rows: Class of each row.
        columns: Number of columns.
    """

    png: str
    rows: tuple[int, ...]
    columns: int

    def save(self, path: Path) -> None:
        """Write the grid as a PNG file."""
        with replacing(path) as draft:
            draft.write_bytes(base64.b64decode(self.png))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {"png": self.png, "rows": list(self.rows), "columns": self.columns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Pictures:
        """Inverse of :meth:`to_dict`."""
        checked(values, png=str, rows=list, columns=int)
        return cls(png=values["png"], rows=tuple(map(int, values["rows"])), columns=values["columns"])
