"""Save and load weights as safetensors: loading runs no code, and the header describes the run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import is_number, parse_json, replacing

__all__ = [
    "check_constants", "class_name", "constants", "load_weights", "save_weights", "structure", "weights_digest",
]  # fmt: skip

_MAX_CONSTANTS = 64
"""Larger unsaved buffers are tables that the model computes itself."""


def save_weights(model: nn.Module, path: str | Path, facts: Mapping[str, Any] | None = None) -> None:
    """Write a model's weights and buffers atomically, with ``facts`` in the header."""
    # safetensors rejects shared memory, so clone tied weights.
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    metadata = {"gradpivot": json.dumps(dict(facts or {}), sort_keys=True)}
    if unsaved := constants(model):
        metadata["constants"] = json.dumps(unsaved, sort_keys=True)
    with replacing(path) as temporary:
        # Not save_file: it writes to a temporary file of its own, which a kill leaves for good.
        temporary.write_bytes(save(state, metadata=metadata))


def load_weights(model: nn.Module, path: str | Path, expected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Load weights into ``model`` and return the facts in the header.

    Raises:
        GradPivotError: if the file is missing, truncated, for another model, or its facts differ from ``expected``.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise GradPivotError(f"there is no weights file {path}") from None
    except (SafetensorError, OSError) as error:
        raise GradPivotError(f"the weights file {path} is damaged ({error}); delete it and run again") from None
    facts = _described(metadata, "gradpivot", path)
    if expected is not None and facts != dict(expected):
        raise GradPivotError(
            f"the weights file {path} was made with {facts}, not {dict(expected)}; delete it or name another folder"
        )
    check_constants(model, metadata, path)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        last = str(error).splitlines()[-1].strip()
        raise GradPivotError(f"the weights file {path} does not fit this model ({last})") from None
    return facts


def constants(model: nn.Module) -> dict[str, list[float]]:
    """Small buffers that affect the output but are not in the ``state_dict``, such as a normalisation's mean."""
    saved = model.state_dict().keys()
    return {
        name: tensor.detach().double().flatten().tolist()
        for name, tensor in model.named_buffers()
        if name not in saved and tensor.numel() <= _MAX_CONSTANTS
    }


def check_constants(model: nn.Module, metadata: Mapping[str, str], path: str | Path) -> None:
    """Check that a file's weights were trained with the model's constants.

    With another normalisation the same weights are a different model, and no other check would notice.

    Raises:
        GradPivotError: naming the constant.
    """
    # Other tools may use that key differently.
    known = _described(metadata, "constants", path) if "gradpivot" in metadata else {}
    mine = constants(model)
    for name in sorted(known.keys() & mine.keys()):
        if known[name] != mine[name]:
            raise GradPivotError(
                f"the weights in {path} were trained with {name} = {_short(known[name])}, but this model has "
                f"{_short(mine[name])}; use the problem or --normalise they were trained with"
            )


def _described(metadata: Mapping[str, str], key: str, path: str | Path) -> dict[str, Any]:
    """The mapping in one entry of a file's header; empty if there is none."""
    try:
        found = parse_json(metadata.get(key, "{}"))
        if not isinstance(found, dict):
            raise ValueError("it is not a mapping")
    except ValueError as error:
        raise GradPivotError(
            f"the header of the weights file {path} is damaged ({key}: {error}); save it again"
        ) from None
    return found


def _short(values: Any) -> str:
    # An integer of 400 digits is no float.
    if isinstance(values, list) and all(map(is_number, values)):
        return ", ".join(f"{value:.4g}" for value in values)
    text = repr(values)
    return text if len(text) <= 60 else f"{text[:57]}..."


def structure(model: nn.Module) -> list[tuple[str, ...]]:
    """Name, class and extra_repr of each module; name, shape and dtype of each weight.

    Networks with equal weights may compute different things, for example with another activation function. A custom
    ``forward`` is not detected.
    """
    modules = [
        (name, class_name(m), re.sub(r" at 0x[0-9a-f]+", "", m.extra_repr())) for name, m in model.named_modules()
    ]
    weights = [(name, str(tuple(t.shape)), str(t.dtype)) for name, t in model.state_dict().items()]
    return [*modules, *weights]


def class_name(value: object) -> str:
    """Class of ``value`` with its module; gradpivot's classes without, so that keys survive a moved file."""
    kind = type(value)
    own = kind.__module__.partition(".")[0] == "gradpivot"
    return f"{'gradpivot' if own else kind.__module__}.{kind.__qualname__}"


def weights_digest(model: nn.Module) -> str:
    """Hash of every weight and buffer, including unsaved ones such as a normalisation (16 hex digits)."""
    digest = hashlib.sha256()
    for name, tensor in sorted((dict(model.named_buffers()) | model.state_dict()).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
