"""Many trainings as one: several models of one architecture, each with its own data, order, seed and initialisation.

A step of a small network takes most of its time in Python. Here all models take it together, on stacked weights
(:func:`torch.func.vmap`), so that each ends as its separate training would, up to rounding.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gradpivot.loop import Loop, RevertibleOptimizer, finished_training, plain_plan
from gradpivot.runtime import isolated
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    from gradpivot.experiments import Problem
    from gradpivot.loop import Plan

__all__ = ["Lesson", "Taught", "train_together", "why_separately"]

_MAX_WEIGHTS = 50_000
"""Above this a step is arithmetic, not Python, and stacked products are slower than single ones."""
_IGNORED = -100
"""Label of the samples that fill up a batch; cross_entropy leaves them out."""


class Lesson(NamedTuple):
    """One training: samples of a dataset, and the seed of order and initialisation."""

    data: Any
    indices: np.ndarray
    seed: int


@dataclass(frozen=True)
class Taught:
    """A trained model, the state of its finished loop (for a checkpoint), and its share of the seconds."""

    model: nn.Module
    state: dict[str, Any]
    seconds: float


def why_separately(problem: Problem, data: Any) -> str | None:
    """Why models of this problem are trained one by one on such data; None if they can be trained together."""
    recipe, model = problem.training, problem.model()
    weights = sum(p.numel() for p in model.parameters())
    kinds = {type(module).__name__ for module in model.modules()}
    obstacles = {
        "its task is not plain classification": problem.task != Classification()
        or type(problem.task) is not Classification,
        "its data are augmented": recipe.augment not in (None, "none"),
        "its recipe clips gradients": recipe.max_norm is not None,
        "the model has buffers, such as BatchNorm statistics": any(True for _ in model.buffers()),
        "the model has dropout": any("Dropout" in kind for kind in kinds),
        "the model has convolutions, which are slower together": any("Conv" in kind for kind in kinds),
        f"the model has {weights:,} weights, and above {_MAX_WEIGHTS:,} it is slower": weights > _MAX_WEIGHTS,
        "some weights are frozen or shared": len({id(p) for p in model.parameters() if p.requires_grad})
        < len(model.state_dict()),
    }
    if reason := next((reason for reason, holds in obstacles.items() if holds), None):
        return reason
    return _stacking_error(problem, data.tensors[0][:2]) if _is_pair(data) else None


def _stacking_error(problem: Problem, inputs: Tensor) -> str | None:
    """Why torch cannot run two models of this problem as one, from a trial."""
    with isolated(0):
        weights = [torch.stack([p.detach()] * 2) for p in problem.model().parameters()]
    try:
        _stacked(problem)(weights, torch.stack([inputs] * 2))
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        return f"torch cannot stack the model ({str(error).splitlines()[0]})"
    return None


def _stacked(problem: Problem) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """Maps stacked weights and one batch per model to the logits of each, as the problem's task reads them."""
    with isolated(0):
        skeleton = problem.model().to("meta").train()
    names = [name for name, _ in skeleton.named_parameters()]
    task = Classification.require(problem.task, "training together")

    def logits(values: Sequence[Tensor], inputs: Tensor) -> Tensor:
        weights = dict(zip(names, values, strict=True))
        return task.outputs(lambda batch: functional_call(skeleton, weights, (batch,)), inputs)

    stacked: Callable[[Sequence[Tensor], Tensor], Tensor] = vmap(logits, randomness="error")
    return stacked


def train_together(problem: Problem, lessons: Sequence[Lesson]) -> list[Taught | None]:
    """Train one model per lesson with the problem's recipe, from its own initialisation, on the CPU.

    Lessons with equally many steps are trained together.

    Returns:
        For each lesson the model, or None if its training diverged or its data are not tensors: train these separately,
        which also says what is wrong. Ask :func:`why_separately` first.
    """
    found: list[Taught | None] = [None] * len(lessons)
    plans = [plain_plan(lesson.indices, problem.training, lesson.seed) for lesson in lessons]
    usable = [k for k, lesson in enumerate(lessons) if _is_pair(lesson.data)]
    for _, group in itertools.groupby(sorted(usable, key=lambda k: plans[k].total), key=lambda k: plans[k].total):
        members = list(group)
        taught = _train(problem, [lessons[k] for k in members], [plans[k] for k in members])
        for k, one in zip(members, taught, strict=True):
            found[k] = one
    return found


def _is_pair(data: Any) -> bool:
    """Whether the data are tensors of inputs and labels; a negative label is an error that the loop explains."""
    return (
        type(data) is TensorDataset
        and len(data.tensors) == 2
        and data.tensors[1].ndim == 1
        and not data.tensors[1].is_floating_point()
        and int(data.tensors[1].min()) >= 0
    )


def _train(problem: Problem, lessons: Sequence[Lesson], plans: Sequence[Plan]) -> list[Taught | None]:
    started = time.perf_counter()
    recipe, count = problem.training, len(lessons)
    models = [_initialised(problem, lesson.seed) for lesson in lessons]
    names = [name for name, _ in models[0].named_parameters()]
    stack = nn.ParameterList(
        torch.stack([dict(model.named_parameters())[name].detach() for model in models]) for name in names
    )
    weights = list(stack)
    forward = _stacked(problem)
    descent = RevertibleOptimizer(stack, recipe, plans[0].total)
    inputs = torch.cat([lesson.data.tensors[0] for lesson in lessons])
    labels = torch.cat([lesson.data.tensors[1] for lesson in lessons]).long()
    starts = [0, *itertools.accumulate(len(lesson.data) for lesson in lessons)][:-1]
    losses, squares = [], []
    for number, (at, sizes) in enumerate(zip(*_orders(plans, starts), strict=True)):
        targets = labels[at].masked_fill(torch.arange(at.shape[1]) >= sizes[:, None], _IGNORED)
        logits = forward(weights, inputs[at])
        each = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none", label_smoothing=recipe.label_smoothing
        )
        loss = each.view(count, -1).sum(1) / sizes
        gradient = torch.autograd.grad(loss.sum(), weights)
        losses.append(loss.detach())
        squares.append(_squares(gradient))
        descent.step(number, list(gradient), [None] * len(weights), None, measured=False)
    descent.load_average()
    curves = zip(torch.stack(losses, 1).tolist(), torch.stack(squares, 1).tolist(), strict=True)
    seconds = (time.perf_counter() - started) / count
    taught: list[Taught | None] = []
    for k, (model, (own_losses, own_squares)) in enumerate(zip(models, curves, strict=True)):
        own = {name: weight[k].detach().clone() for name, weight in zip(names, weights, strict=True)}
        finite = all(map(math.isfinite, (*own_losses, *own_squares))) and all(
            bool(v.isfinite().all()) for v in own.values()
        )
        model.load_state_dict(own)
        state = finished_training(model, recipe, own_losses, own_squares) if finite else None
        taught.append(None if state is None else Taught(model.eval(), state, seconds))
    return taught


def _initialised(problem: Problem, seed: int) -> nn.Module:
    """A model as :class:`gradpivot.runs.FitToAll` and Retrain start from it."""
    with isolated(0):
        model = problem.model()
        Loop(seed=seed, factory=problem.model).initialise(model)
    return model


def _orders(plans: Sequence[Plan], starts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Sample indices of every step and model, filled up to one width, and the sizes of the batches."""
    orders = [[batch for _, (side,) in plan.epochs_from(0) for batch in side] for plan in plans]
    sizes = np.array([[len(batch) for batch in order] for order in orders])
    at = np.empty((*sizes.shape, sizes.max()), dtype=np.int64)
    for k, (order, start) in enumerate(zip(orders, starts, strict=True)):
        # Filled up with a sample of its own: 0·∞ is not 0, so another's would not be without effect.
        at[k] = start + order[0][0]
        for step, batch in enumerate(order):
            at[k, step, : len(batch)] = start + batch
    return torch.from_numpy(at).transpose(0, 1), torch.from_numpy(sizes).T


def _squares(gradient: Sequence[Tensor]) -> Tensor:
    """‖r‖² of each model's gradient."""
    return torch.stack([part.flatten(1).double().square().sum(1) for part in gradient]).sum(0)
