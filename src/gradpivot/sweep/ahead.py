"""Train the originals and references of an audit's worlds together, before the sweep (:mod:`gradpivot.runs.together`).

Originals go into the store, references into the checkpoints of their runs, which then only score them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from safetensors.torch import load as load_tensors, save as save_tensors

from gradpivot.loop import Checkpoint
from gradpivot.methods import make_method
from gradpivot.runs import Lesson, Taught, train_together, why_separately
from gradpivot.sweep.cell import Cell
from gradpivot.sweep.store.store import Store
from gradpivot.sweep.work import find_split, problem_of

__all__ = ["train_ahead"]

_TOGETHER = 32
"""Models in one program; more take more memory and no less time each."""
_MAX_MEMORY = 2**30
"""Bytes of data in one program: each model comes with a copy of the training set."""


def train_ahead(cells: Sequence[Cell], store: Store) -> str | None:
    """Train what the store lacks, in this process.

    Args:
        cells: The cells of the worlds.
        store: Receives originals and checkpoints; what it already has is not trained again.

    Returns:
        None, or why the sweep must train these models one by one.
    """
    done = store.done([cell.key for cell in cells])
    missing = [cell for cell in cells if cell.key not in done]
    if not missing:
        return None
    setting = missing[0].setting
    if setting.device != "cpu":
        return f"the device is {setting.device}, and training together is for the CPU"
    if reason := why_separately(problem_of(setting.problem), find_split(missing[0]).train):
        return reason
    before = torch.get_num_threads()
    torch.set_num_threads(setting.threads)
    try:
        _train_originals(missing, store)
        _train_references(missing, store)
    finally:
        torch.set_num_threads(before)
    return None


def _train_originals(cells: Sequence[Cell], store: Store) -> None:
    wanted = {cell.original_key: cell for cell in cells if not store.has_original(cell.original_key)}
    for cell, taught in _taught(list(wanted.values()), shadows=True):
        state = {name: tensor.detach().contiguous() for name, tensor in taught.model.state_dict().items()}
        store.put_original(cell.original_key, save_tensors(state), taught.seconds)


def _train_references(cells: Sequence[Cell], store: Store) -> None:
    wanted = [
        cell
        for cell in cells
        if cell.role == "retrained"
        and store.has_original(cell.original_key)
        and not store.checkpoint_path(cell.key).exists()
    ]
    for cell, taught in _taught(wanted, shadows=False):
        problem = problem_of(cell.setting.problem)
        original = problem.model()
        original.load_state_dict(load_tensors(store.original_path(cell.original_key).read_bytes()))
        prepared = problem.prepared(original.eval(), find_split(cell), make_method(cell.method), seed=cell.seed)
        Checkpoint(store.checkpoint_path(cell.key), prepared.key, 0).write(taught.state, taught.seconds)


def _taught(cells: Sequence[Cell], *, shadows: bool) -> Iterator[tuple[Cell, Taught]]:
    """Train the shadow or the reference of each cell's world, block by block; without those to train separately."""
    if not cells:
        return
    problem, size = problem_of(cells[0].setting.problem), _block_size(cells[0])
    for start in range(0, len(cells), size):
        block = cells[start : start + size]
        for cell, one in zip(block, train_together(problem, [_lesson(c, shadows) for c in block]), strict=True):
            if one is not None:
                yield cell, one


def _block_size(cell: Cell) -> int:
    """How many models fit into one program."""
    data = find_split(cell).train
    size = sum(t.numel() * t.element_size() for t in getattr(data, "tensors", ()))
    # The training sets, and one tensor of all of them.
    return max(1, min(_TOGETHER, _MAX_MEMORY // (2 * size) if size else _TOGETHER))


def _lesson(cell: Cell, shadow: bool) -> Lesson:
    split = find_split(cell)
    indices = np.sort(np.concatenate([split.forget_indices, split.retain_indices])) if shadow else split.retain_indices
    return Lesson(split.train, indices, cell.seed)
