"""Weights on disk as safetensors: no code runs on loading, and the file says what it belongs to."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from gradpivot.errors import GradPivotError
from gradpivot.runtime import replacing

__all__ = [
    "check_constants", "class_name", "constants", "load_weights", "save_weights", "structure", "weights_digest",
]  # fmt: skip

_MOST_CONSTANTS = 64
"""Larger buffers that are not saved are tables a model computes by itself."""


def save_weights(model: nn.Module, path: str | Path, facts: Mapping[str, Any] | None = None) -> None:
    """Write a model's weights and buffers, atomically, with a few facts in the header."""
    # Tied weights share memory, which safetensors refuses; a clone each loads back just the same.
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    metadata = {"gradpivot": json.dumps(dict(facts or {}), sort_keys=True)}
    if unsaved := constants(model):
        metadata["constants"] = json.dumps(unsaved, sort_keys=True)
    with replacing(path) as temporary:
        try:
            save_file(state, temporary, metadata=metadata)
        except SafetensorError as error:
            # safetensors wraps what the disk says in an error of its own; callers know OSError.
            if "No space left" in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise


def load_weights(model: nn.Module, path: str | Path, expected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Load weights into ``model`` and give back the facts of the file.

    Raises:
        GradPivotError: if the file is missing, cut short, for another model, or has other facts than ``expected``.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise GradPivotError(f"there is no weights file {path}") from None
    except (SafetensorError, OSError) as error:
        raise GradPivotError(f"the weights file {path} is damaged ({error}); make it again") from None
    facts: dict[str, Any] = json.loads(metadata.get("gradpivot", "{}"))
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
    """What decides outputs and is no part of the ``state_dict``: small buffers such as the mean of a normalisation."""
    saved = model.state_dict().keys()
    return {
        name: tensor.detach().double().flatten().tolist()
        for name, tensor in model.named_buffers()
        if name not in saved and tensor.numel() <= _MOST_CONSTANTS
    }


def check_constants(model: nn.Module, metadata: Mapping[str, str], path: str | Path) -> None:
    """Raise if a file's weights were made with other constants than the model has.

    Under another normalisation the same weights are another model, and nothing else would tell.

    Raises:
        GradPivotError: naming the constant.
    """
    # Others may keep something else under that name.
    known = json.loads(metadata["constants"]) if {"constants", "gradpivot"} <= metadata.keys() else {}
    mine = constants(model)
    for name in sorted(known.keys() & mine.keys()):
        if known[name] != mine[name]:
            raise GradPivotError(
                f"the weights in {path} were made with {name} = {_short(known[name])}, and this model has "
                f"{_short(mine[name])}; use the problem or the --normalise that they were trained with"
            )


def _short(values: list[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def structure(model: nn.Module) -> list[tuple[str, ...]]:
    """The modules by name, kind and what they say of themselves, and the weights' names, shapes and types.

    Networks with the same weights may compute different things: a ReLU or a sine between them, an Upsample before. What
    a ``forward`` of somebody's own does is not seen.
    """
    modules = [
        (name, class_name(m), re.sub(r" at 0x[0-9a-f]+", "", m.extra_repr())) for name, m in model.named_modules()
    ]
    weights = [(name, str(tuple(t.shape)), str(t.dtype)) for name, t in model.state_dict().items()]
    return [*modules, *weights]


def class_name(value: object) -> str:
    """The class of ``value`` with its module; of our own only the name, so that keys survive a moved file."""
    kind = type(value)
    own = kind.__module__.partition(".")[0] == "gradpivot"
    return f"{'gradpivot' if own else kind.__module__}.{kind.__qualname__}"


def weights_digest(model: nn.Module) -> str:
    """16 hexadecimal digits over every weight and buffer, also those that are never saved, such as a normalisation."""
    digest = hashlib.sha256()
    for name, tensor in sorted((dict(model.named_buffers()) | model.state_dict()).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
