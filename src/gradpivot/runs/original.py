"""The model before anything is forgotten: trained once, kept on disk, shared by every run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from gradpivot.errors import GradPivotError
from gradpivot.loop import Loop, Progress
from gradpivot.models import load_weights, save_weights
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
    """The problem's own trained model, or one trained on all of ``split.train`` with the problem's recipe.

    With a ``checkpoint`` a training that was killed continues from it; ``key`` says which training it belongs to.
    Of several ``replicas`` the first trains it and hands the weights out: on a GPU no two would train the same.

    Raises:
        GradPivotError: if training diverges.
    """
    if problem.original is not None:
        return problem.original().to(device).eval()
    model = problem.model().to(device)
    # Alone, also among several processes: with BatchNorm in train mode they would train another model together.
    running = replace(
        problem.running, seed=seed, progress=progress, precision=precision, compile=compile, replicas=Replicas()
    )
    loop = running.loop(checkpoint)
    if replicas is None or replicas.size == 1:
        return _trained(model, problem, split, loop, key)
    model.load_state_dict(replicas.from_first(lambda: _on_cpu(_trained(model, problem, split, loop, key).state_dict())))
    return model.eval()


def _trained(model: nn.Module, problem: Problem, split: ForgetSplit, loop: Loop, key: str) -> nn.Module:
    outcome = loop.run(FitToAll(problem.training), model, problem.task, split, key=key)
    if outcome.diverged:
        raise GradPivotError(f"training the original model diverged ({outcome.diverged}); lower its lr")
    return outcome.model.eval()


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Where every process can take it from: a GPU's number means another GPU on another machine."""
    return {name: tensor.cpu() for name, tensor in state.items()}


def original_model(
    problem: Problem, split: ForgetSplit, seed: int, path: Path, progress: Progress | None = None
) -> nn.Module:
    """The problem's own original; else that in ``path``, or a newly trained one that is kept there."""
    if problem.original is not None:
        return problem.original().eval()
    facts: dict[str, Any] = {"split_data": split.data_digest, "recipe": problem.training.label, "seed": seed}
    if path.exists():
        model = problem.model()
        load_weights(model, path, expected=facts)
        return model.eval()
    model = train_original(problem, split, seed, progress)
    save_weights(model, path, facts)
    return model
