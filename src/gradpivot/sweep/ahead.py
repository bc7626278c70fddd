"""Train the originals and references of an audit's worlds together, before the sweep (:mod:`gradpivot.runs.together`).

Originals go into the store, references into the checkpoints of their runs, which then only score them.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors, save as save_tensors

from gradpivot.loop import Checkpoint
from gradpivot.methods import make_method
from gradpivot.runs import Lesson, train_together, why_separately
from gradpivot.sweep.cell import Cell
from gradpivot.sweep.engines.job import Engine, Job
from gradpivot.sweep.store.store import Store
from gradpivot.sweep.work import find_split, problem_of

__all__ = ["train_ahead", "train_block"]

_TOGETHER = 32
"""Models in one program; more take more memory and no less time each."""
_MAX_MEMORY = 2**30
"""Bytes of data in one program: each model comes with a copy of the training set."""


def train_ahead(cells: Sequence[Cell], store: Store, engine: Engine) -> str | None:
    """Train what the store lacks, block by block in the engine's workers.

    Args:
        cells: The cells of the worlds.
        store: Receives originals and checkpoints; what it already has is not trained again.
        engine: Runs the blocks.

    Returns:
        None, or why the sweep must train some of these models one by one.
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
    shadows = {cell.original_key: cell for cell in missing if not store.has_original(cell.original_key)}
    references = [c for c in missing if c.role == "retrained" and not store.checkpoint_path(c.key).exists()]
    # Not by the number of workers: the size of a block changes the last digits.
    size = _block_size(missing[0])
    waiting: dict[str, Job] = {}
    for role, wanted in (("shadow", [*shadows.values()]), ("reference", references)):
        for start in range(0, len(wanted), size):
            job = _job(f"{role} {start}", wanted[start : start + size], role == "shadow", store)
            waiting[job.key] = job
            engine.submit(job)
    late, failed = [], None
    while waiting:
        for outcome in engine.wait(1.0):
            block = waiting.pop(outcome.job.key).block
            if not isinstance(outcome.value, bytes):
                failed = f"a program of {len(block)} models failed ({outcome.error or outcome.lost})"
                continue
            taught = list(zip(block, pickle.loads(outcome.value), strict=True))
            _keep_originals([(cell, *one) for (cell, shadow), one in taught if shadow and one], store)
            late += [(cell, *one) for (cell, shadow), one in taught if one and not shadow]
    _keep_references(late, store)
    return failed


def train_block(block: Sequence[tuple[Cell, bool]]) -> bytes:
    """Train the shadow model or the reference of each cell's world; the worker's part of :func:`train_ahead`.

    Returns:
        For each the state of its finished loop and its seconds, or None for one to train separately, pickled.
    """
    setting = block[0][0].setting
    torch.set_num_threads(setting.threads)
    problem = problem_of(setting.problem)
    taught = train_together(problem, [_lesson(cell, shadow) for cell, shadow in block])
    return pickle.dumps([None if one is None else (one.state, one.seconds) for one in taught])


def _job(key: str, cells: Sequence[Cell], shadow: bool, store: Store) -> Job:
    return Job(
        key=key,
        setting=cells[0].setting,
        seed=cells[0].seed,
        cell=None,
        original=store.original_path(cells[0].original_key).absolute(),
        checkpoint=store.checkpoint_path(cells[0].key).absolute(),
        store=(store.folder.absolute(), store.id),
        block=tuple((cell, shadow) for cell in cells),
    )


def _keep_originals(taught: Sequence[tuple[Cell, Mapping[str, Any], float]], store: Store) -> None:
    for cell, state, seconds in taught:
        weights = {name: tensor.detach().contiguous() for name, tensor in state["descent"]["model"].items()}
        store.put_original(cell.original_key, save_tensors(weights), seconds)


def _keep_references(taught: Sequence[tuple[Cell, dict[str, Any], float]], store: Store) -> None:
    """Write checkpoints, whose keys depend on the originals; without those to train separately."""
    for cell, state, seconds in taught:
        if not store.has_original(cell.original_key):
            continue
        problem = problem_of(cell.setting.problem)
        original = problem.model()
        original.load_state_dict(load_tensors(store.original_path(cell.original_key).read_bytes()))
        prepared = problem.prepared(original.eval(), find_split(cell), make_method(cell.method), seed=cell.seed)
        Checkpoint(store.checkpoint_path(cell.key), prepared.key, 0).write(state, seconds)


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
