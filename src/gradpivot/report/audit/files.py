"""Files of an audit: ``audit.json`` and ``audit.html``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradpivot.errors import GradPivotError
from gradpivot.report.audit.page import render_audit
from gradpivot.report.common.markup import write_html
from gradpivot.results import AuditRecord
from gradpivot.runtime import parse_json, write_text

__all__ = ["read_audit", "write_audit"]

_JSON, _PAGE = "audit.json", "audit.html"


def write_audit(record: AuditRecord, folder: str | Path) -> list[Path]:
    """Write ``audit.html`` and ``audit.json`` atomically; returns both paths. NaN and infinity become null.

    ``audit.json`` is written last, so a folder that has it is complete.
    """
    values = _finite(record.to_dict())
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    data, page = Path(folder) / _JSON, Path(folder) / _PAGE
    write_html(page, render_audit(record))
    # Lone surrogates, as in undecodable file names, are not valid UTF-8.
    write_text(data, text.encode("utf-8", "replace").decode("utf-8"))
    return [data, page]


def read_audit(path: str | Path) -> AuditRecord:
    """Read an ``audit.json``, or the one in a folder.

    Raises:
        GradPivotError: If there is none, or it is truncated or something else.
    """
    file = Path(path) / _JSON if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise GradPivotError(f"there is no audit at {path}; 'gradpivot audit' writes one")
    try:
        values = parse_json(file.read_text(encoding="utf-8"))
        attacks = [{**found, "value": _number(found["value"])} for found in values.get("attacks", ())]
        return AuditRecord.from_dict({**values, "attacks": attacks})
    except GradPivotError as error:
        raise GradPivotError(f"cannot read {file}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GradPivotError(f"{file} is not an audit, or is truncated ({error}); audit again") from None


def _finite(value: Any) -> Any:
    """JSON-able data: arrays as lists, numbers that JSON does not know as None."""
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value
