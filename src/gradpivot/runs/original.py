"""The original model: trained once, saved to disk and shared by all runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop, Progress
from gradpivot.models import load_weights, save_weights
from gradpivot.runs.checks import check_fits
from gradpivot.runs.training import FitToAll
from gradpivot.runtime import Replicas

if TYPE_CHECKING:
    from gradpivot.data import ForgetSplit
    from gradpivot.experiments import Problem

__all__ = ["original_model", "train_original"]


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
    if replicas is None or replicas.size == 1:
        return _train(model, problem, split, loop, key)
    model.load_state_dict(replicas.from_first(lambda: _on_cpu(_train(model, problem, split, loop, key).state_dict())))
    return model.eval()


def _train(model: nn.Module, problem: Problem, split: ForgetSplit, loop: Loop, key: str) -> nn.Module:
    outcome = loop.run(FitToAll(problem.training), model, problem.task, split, key=key)
    if outcome.diverged:
        raise GradPivotError(f"training the original model diverged ({outcome.diverged}); lower its lr")
    return outcome.model.eval()


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move to the CPU, because GPU numbers differ between machines."""
    return {name: tensor.cpu() for name, tensor in state.items()}


def original_model(
    problem: Problem, split: ForgetSplit, seed: int, path: Path, progress: Progress | None = None
) -> nn.Module:
    """The problem's pretrained model, else the one saved in ``path``, else a new one, which is saved there."""
    if problem.original is not None:
        return problem.original().eval()
    facts: dict[str, Any] = {"split_data": split.data_digest, "recipe": problem.training.label, "seed": seed}
    if len(split.already_forgotten):
        without = split.already_forgotten.astype("<i8").tobytes()
        facts["trained_without"] = hashlib.sha256(without).hexdigest()[:16]
    if path.exists():
        model = problem.model()
        load_weights(model, path, expected=facts)
        return model.eval()
    model = train_original(problem, split, seed, progress)
    save_weights(model, path, facts)
    return model
