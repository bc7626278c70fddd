"""Load third-party checkpoints: ``torch.save`` and safetensors files, with their containers and key names.

No code in a file runs: pickles are read with ``weights_only=True``, which allows only tensors and plain containers.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.models.checkpoints.renaming import Fit, fit_names, rename
from gradpivot.models.checkpoints.weights import check_constants

__all__ = ["Loaded", "load_foreign", "read_tensors"]

# Keys under which training scripts save the weights, in order of preference; averaged weights come last.
_CONTAINERS = (
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "weights", "params",
    "ema_state_dict", "state_dict_ema", "model_ema", "ema",
)  # fmt: skip
_NO_WEIGHTS = re.compile(r"optim|sched|scaler|callback|loop|hyper", re.IGNORECASE)
_DEPTH = 4
_SAVE_AGAIN = (
    "where it was made, save the weights alone: torch.save(model.state_dict(), 'weights.pt'), or "
    "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
)


@dataclass(frozen=True)
class Loaded:
    """Summary of a loaded checkpoint.

    Attributes:
        path: The file.
        tensors: Number of tensors loaded.
        notes: What was selected and renamed; empty if the keys match directly.
    """

    path: Path
    tensors: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "; ".join(self.notes) or "keys match"
        return f"{self.tensors} tensors from {self.path.name}: {how}"


def load_foreign(model: nn.Module, path: str | Path, rules: Sequence[str] = ()) -> Loaded:
    """Load a third-party checkpoint into ``model``: either all weights or none.

    Renames the keys by ``rules`` first. If they still differ, tries them without the wrappers of DataParallel and
    torch.compile, under another prefix, and with common synonyms (``fc``, ``linear``). A renaming is accepted only if
    every key of file and model then has a match of the same shape.

    Args:
        model: Model to load into.
        path: File written by ``torch.save`` (``.pt``, ``.pth``, ``.bin``, ``.ckpt``) or safetensors.
        rules: ``old=new``, see :func:`gradpivot.models.checkpoints.renaming.parse_rule`.

    Raises:
        GradPivotError: if the file is missing, damaged, contains more than tensors, or does not fit.
    """
    path = Path(path)
    found, notes = read_tensors(path)
    check_constants(model, _header(path), path)
    names = rename(found, rules)
    state = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    fit = fit_names(names, state)
    tensors = {new: found[old] for old, new in fit.names.items()}
    twins = _twins(fit.missing, tensors, state)
    fit = replace(fit, missing=tuple(key for key in fit.missing if key not in twins))
    if not fit.is_whole:
        raise GradPivotError(_misfit(path, fit, tensors, state))
    for key, tensor in tensors.items():
        _check_alike(path, key, tensor, state[key])
    whole = tensors | {key: tensors[twin] for key, twin in twins.items()}
    model.load_state_dict({**model.state_dict(), **whole})
    if rules:
        notes = (*notes, f"renamed by {', '.join(rules)}")
    return Loaded(path, len(tensors), (*notes, *fit.notes))


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Read the tensors of a file by name, with notes on where in the file they were.

    Raises:
        GradPivotError: if the file is missing, damaged, or contains something other than tensors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except FileNotFoundError:
        raise GradPivotError(f"there is no weights file {path}") from None
    except IsADirectoryError:
        raise GradPivotError(f"{path} is a folder; pass the weights file in it") from None
    if start.startswith(b"version https://git-lfs"):
        raise GradPivotError(f"{path} is a Git LFS pointer, not the weights; fetch them with 'git lfs pull'")
    if start.startswith(b"PK"):
        _check_archive(path)
    if start.startswith((b"PK", b"\x80")):
        return _weights_in(_unpickled(path), path, ())
    if start[8:9] == b"{":
        return _safetensors(path), ()
    raise GradPivotError(
        f"{path} is damaged or not a weights file; pass a torch.save file (.pt, .pth, .bin, .ckpt) or safetensors"
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise GradPivotError(f"the weights file {path} is damaged ({error}); download it again") from None


def _header(path: Path) -> dict[str, str]:
    """Metadata of a safetensors file; empty for other files."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError:
        return {}


def _check_archive(path: Path) -> None:
    """Check the zip file before torch reads it: torch verifies neither checksums nor compression."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.filename.endswith("constants.pkl") for entry in entries):
                raise GradPivotError(f"{path} is a TorchScript program, not weights; {_SAVE_AGAIN}")
            # torch.save does not compress, so a compressed file may be a decompression bomb.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise GradPivotError(f"{path} is a compressed archive, which torch.save never writes; unpack it")
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise GradPivotError(f"the weights file {path} is damaged ({_line(error)}); download it again") from None
    if damaged is not None:
        raise GradPivotError(
            f"the weights file {path} is damaged (the checksum of {damaged} is wrong); download it again"
        )


def _unpickled(path: Path) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise GradPivotError(
                f"the weights file {path} is damaged or contains more than tensors; {_SAVE_AGAIN}"
            ) from None
        raise GradPivotError(
            f"{path} contains Python objects ({refused[1]}), which could run code when loaded; {_SAVE_AGAIN}"
        ) from None
    except Exception as error:
        # A damaged file can make torch raise nearly anything.
        raise GradPivotError(f"the weights file {path} is damaged ({_line(error)}); download it again") from None


def _weights_in(
    content: Any, path: Path, notes: tuple[str, ...], depth: int = 0
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Find the named tensors in nested dictionaries: in a known container, at the top, or in the only candidate."""
    if not isinstance(content, Mapping) or depth > _DEPTH:
        raise GradPivotError(f"{path} holds a {type(content).__name__}, not named tensors; {_SAVE_AGAIN}")
    sets = [
        key
        for key, value in content.items()
        if isinstance(key, str) and not _NO_WEIGHTS.search(key) and _holds_tensors(value)
    ]
    known = [name for name in _CONTAINERS if name in sets]
    tensors = {key: t for key, t in content.items() if isinstance(key, str) and isinstance(t, Tensor)}
    if tensors and not known:
        return tensors, notes
    chosen = known or sets
    if not chosen:
        some = ", ".join(map(str, list(content)[:5])) or "empty"
        raise GradPivotError(f"{path} holds no weights ({some}); {_SAVE_AGAIN}")
    if len(chosen) > 1 and not known:
        raise GradPivotError(
            f"{path} holds several sets of weights ({', '.join(chosen[:5])}); save the one you mean alone"
        )
    others = f" ({' and '.join(map(repr, chosen[1:]))} left aside)" if chosen[1:] else ""
    return _weights_in(content[chosen[0]], path, (*notes, f"taken from {chosen[0]!r}{others}"), depth + 1)


def _holds_tensors(value: Any, depth: int = 0) -> bool:
    """Whether it is a dictionary with tensors, nested at most ``_DEPTH`` deep."""
    return isinstance(value, Mapping) and any(
        isinstance(inner, Tensor) or (depth < _DEPTH and _holds_tensors(inner, depth + 1)) for inner in value.values()
    )


def _twins(missing: Sequence[str], given: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, str]:
    """Missing keys tied to given ones: safetensors saves tied weights under one name only."""
    owners = {_memory(state[key]): key for key in given if key in state and state[key].data_ptr()}
    return {key: owners[_memory(state[key])] for key in missing if _memory(state[key]) in owners}


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device


def _check_alike(path: Path, key: str, tensor: Tensor, own: Tensor) -> None:
    if tensor.shape != own.shape:
        raise GradPivotError(
            f"{path}: {key} is {tuple(tensor.shape)} in the file and {tuple(own.shape)} in the model; use the model "
            f"it was saved from"
        )
    if tensor.is_meta or tensor.layout is not torch.strided:
        raise GradPivotError(f"{path}: {key} is sparse or empty; save dense weights")
    if own.is_floating_point() and not tensor.is_floating_point():
        raise GradPivotError(
            f"{path}: {key} is {tensor.dtype} in the file and {own.dtype} in the model; save it unquantised"
        )


def _misfit(path: Path, fit: Fit, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    parts = []
    if fit.missing:
        parts.append(f"{len(fit.missing)} missing ({_some(fit.missing, state)})")
    if fit.unexpected:
        parts.append(f"{len(fit.unexpected)} unexpected ({_some(fit.unexpected, tensors)})")
    hint = "rename with --map 'old=new', drop with --map 'old=-', or use the model it was saved from"
    return f"the weights file {path} does not fit this model: {' and '.join(parts)} keys; {hint}"


def _some(keys: Sequence[str], tensors: Mapping[str, Tensor]) -> str:
    notes = ", ".join(f"{key} {tuple(tensors[key].shape)}" for key in keys[:3])
    return f"{notes}, …" if len(keys) > 3 else notes


def _line(error: Exception) -> str:
    """The first sentence of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0]
