"""What a generator drew, as one picture. No torch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradpivot.runtime import replacing

__all__ = ["Pictures"]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """A sheet of samples: a row a class, those forgotten first, and a column a noise seed, without gaps.

    Attributes:
        png: The sheet as a PNG file in base64: 80 digits of 16×16 are 30 KB.
        rows: The class of each row.
        columns: How many columns there are.
    """

    png: str
    rows: tuple[int, ...]
    columns: int

    def save(self, path: Path) -> None:
        """Write the sheet as a PNG file."""
        with replacing(path) as draft:
            draft.write_bytes(base64.b64decode(self.png))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dictionary."""
        return {"png": self.png, "rows": list(self.rows), "columns": self.columns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Pictures:
        """Read back what :meth:`to_dict` wrote."""
        return cls(png=str(values["png"]), rows=tuple(values["rows"]), columns=int(values["columns"]))
