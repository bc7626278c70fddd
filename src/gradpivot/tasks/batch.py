"""Convert user batches to (input, target)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradpivot.errors import GradPivotError

__all__ = ["Adapter", "input_and_target"]

Adapter = Callable[[Any], tuple[Any, Any]]
"""Maps a sample or batch of any structure to (input, target)."""

_INPUT_KEYS = ("input", "inputs", "x", "image", "images", "pixel_values", "features", "data")
_TOKEN_KEYS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "pixel_values", "bbox")
"""Keyword arguments of Hugging Face models."""
_TARGET_KEYS = ("target", "targets", "y", "label", "labels")


def input_and_target(batch: Any) -> tuple[Any, Any]:
    """The default adapter: accepts pairs and dictionaries with common key names.

    Hugging Face batches give a dictionary of keyword arguments as the input.

    Raises:
        GradPivotError: If input and target cannot be identified; pass your own adapter.
    """
    # The usual case first; abstract base classes take a microsecond each.
    if type(batch) is tuple and len(batch) == 2:
        return batch
    if isinstance(batch, Mapping):
        x = next((k for k in ("input_ids", *_INPUT_KEYS) if k in batch), None)
        y = next((k for k in _TARGET_KEYS if k in batch), None)
        if x is None or y is None:
            raise GradPivotError(
                f"cannot identify input and target among the keys {sorted(map(str, batch))}; pass an adapter, "
                f'for example adapter=lambda batch: (batch["pixels"], batch["digit"])'
            )
        named = {k: batch[k] for k in _TOKEN_KEYS if k in batch} if x == "input_ids" else {}
        return named if len(named) > 1 else batch[x], batch[y]
    if isinstance(batch, Sequence) and len(batch) == 2:
        return batch[0], batch[1]
    raise GradPivotError(
        f"a sample is a {type(batch).__name__}, not (input, target); pass an adapter, for example "
        f"adapter=lambda sample: (sample.image, sample.label)"
    )
