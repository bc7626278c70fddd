"""The original model: trained once, saved to disk and shared by all runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop, Progress
from gradpivot.models import constants, load_weights, save_weights, structure
from gradpivot.runs.checks import check_fits
from gradpivot.runs.training import FitToAll
from gradpivot.runtime import Replicas, environment

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem

__all__ = ["original_file", "original_model", "train_original"]


def train_original(
    problem: Problem,
    split: ForgetSplit,
    seed: int,
    progress: Progress | None = None,
    *,
    device: str = "cpu",
    precision: str = "float32",
    compile: bool = False,
    checkpoint: Path | None = None,
    key: str = "",
    replicas: Replicas | None = None,
) -> nn.Module:
    """The problem's pretrained model, or one trained on the forget and retain sets with the problem's recipe.

    Args:
        problem: Model, task and recipe.
        split: The data.
        seed: Seeds training.
        progress: Called with (steps done, total steps).
        device: Device to train on.
        precision: Precision of forward and backward passes.
        compile: Whether to use ``torch.compile``.
        checkpoint: Checkpoint file to resume from, or None.
        key: Identifies the training in its checkpoint.
        replicas: The data-parallel processes. The first one trains and sends the weights to the others, because
            training on a GPU is not reproducible.

    Raises:
        GradPivotError: If training diverges.
    """
    if problem.original is not None:
        return problem.original().to(device).eval()
    model = problem.model()
    check_fits(model, split, problem.task)
    model = model.to(device)
    # Train in one process: with BatchNorm in train mode, data-parallel training gives a different model.
    running = replace(
        problem.running, seed=seed, progress=progress, precision=precision, compile=compile, replicas=Replicas()
    )
    loop = running.loop(checkpoint)
    return _from_first(replicas, model, lambda: _train(model, problem, split, loop, key))


def _train(model: nn.Module, problem: Problem, split: ForgetSplit, loop: Loop, key: str) -> nn.Module:
    outcome = loop.run(FitToAll(problem.training), model, problem.task, split, key=key)
    if outcome.diverged:
        raise GradPivotError(f"training the original model diverged ({outcome.diverged}); lower its lr")
    return outcome.model.eval()


def _from_first(replicas: Replicas | None, model: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    """The model that ``make`` returns in the first process; the others load its weights into ``model``."""
    if replicas is None or replicas.size == 1:
        return make()
    model.load_state_dict(replicas.from_first(lambda: _on_cpu(make().state_dict())))
    return model.eval()


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move to the CPU, because GPU numbers differ between machines."""
    return {name: tensor.cpu() for name, tensor in state.items()}


def original_model(
    problem: Problem,
    split: ForgetSplit,
    seed: int,
    path: Path,
    progress: Progress | None = None,
    *,
    device: str = "cpu",
    precision: str = "float32",
    compile: bool = False,
    replicas: Replicas | None = None,
) -> nn.Module:
    """The problem's pretrained model, else the one saved in ``path``, else a new one, which is saved there.

    Interrupted training resumes from a checkpoint beside ``path``. The arguments are those of :func:`train_original`.
    """
    if problem.original is not None:
        return problem.original().to(device).eval()
    how: dict[str, Any] = {"device": device, "precision": precision, "compile": compile}
    model, facts = problem.model().to(device), _facts(problem, split, seed)
    checkpoint = path.with_suffix(".pt")

    def load_or_train() -> nn.Module:
        if path.exists():
            load_weights(model, path, expected=facts)
            return model.eval()
        key = _key(problem, split, seed, **how)
        trained = train_original(problem, split, seed, progress, checkpoint=checkpoint, key=key, **how)
        save_weights(trained, path, facts)
        checkpoint.unlink(missing_ok=True)
        return trained

    return _from_first(replicas, model, load_or_train)


def original_file(folder: Path, problem: Problem, split: ForgetSplit, seed: int, **how: Any) -> Path:
    """The file in ``folder`` for :func:`original_model`, named by everything that decides the weights."""
    return folder / f"original-{_key(problem, split, seed, **how)}.safetensors"


def _key(problem: Problem, split: ForgetSplit, seed: int, **how: Any) -> str:
    model, code = problem.model(), environment()["code"]
    training = [problem.name, problem.training.to_dict(), structure(model), constants(model)]
    described = [_facts(problem, split, seed), training, how, code, torch.get_num_threads()]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _facts(problem: Problem, split: ForgetSplit, seed: int) -> dict[str, Any]:
    """What the saved original was trained on."""
    facts: dict[str, Any] = {"split_data": split.data_digest, "recipe": problem.training.label, "seed": seed}
    if len(split.already_forgotten):
        without = split.already_forgotten.astype("<i8").tobytes()
        facts["trained_without"] = hashlib.sha256(without).hexdigest()[:16]
    return facts
