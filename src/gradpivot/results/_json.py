"""Conversion to JSON-able data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "select"]


def plain(value: Any) -> Any:
    """Convert a value to JSON-able data: with ``to_dict`` if it has one, mappings and sequences recursively."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def select(owner: object, *names: str) -> dict[str, Any]:
    """Attributes of an object as JSON-able data, in this order."""
    return {name: plain(getattr(owner, name)) for name in names}
