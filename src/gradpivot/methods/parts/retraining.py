"""Training on the retain set alone: of all weights (FT, warm restart) or of the last layers (CF-k, EU-k)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["LastLayers", "RetainDescent", "frozen_weights_kept"]


@dataclass(frozen=True, kw_only=True)
class RetainDescent(Descent):
    """Training on the retain set alone.

    Attributes:
        epochs: Passes over the retain set.
    """

    needs_forget: ClassVar[bool] = False
    uses_all_retain: ClassVar[bool] = True

    lr: float = 0.05
    epochs: int = 5
    batch_size: int | None = 128
    weight_decay: float = 5e-4
    schedule: Literal["constant", "cosine", "one_cycle"] = "cosine"
    batchnorm: Literal["frozen", "train", "recalibrate"] = "train"

    def fit(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Train on D_r."""
        for batch in loop.batches(model, task, split.train, split.retain_indices, self):
            gradients = loop.gradients(retain=partial(task.retain_loss, model, batch.data))
            loop.step(gradients, Weights(0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class LastLayers(RetainDescent):
    """Training of the last k layers on the retain set; the other weights stay.

    Attributes:
        k: Number of layers, counted from the output. A layer has a weight matrix; normalisation belongs to the layer
            before it.
    """

    knob: ClassVar[str | None] = "k"
    paper: ClassVar[Mapping[str, Any]] = {}

    k: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("k", ge=1, integer=True)

    def last_layers(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> tuple[str, ...]:
        """Names of the modules of the last k layers."""
        from gradpivot.models import last_layers

        _, batch = next(loop.eval_batches(model, split.train, split.retain_indices[:2], 2))
        return last_layers(model, partial(task.retain_loss, model, batch), self.k)

    def fit_layers(
        self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop, modules: tuple[str, ...]
    ) -> None:
        """Train the given modules on D_r."""
        with _only_trainable(model, modules):
            self.fit(model, task, split, loop)


@contextmanager
def _only_trainable(model: nn.Module, modules: tuple[str, ...]) -> Iterator[None]:
    """Fix all weights but those of the given modules, so that no gradient passes below them."""
    # By identity: a weight that two modules share has one name.
    chosen = {id(p) for name in modules for p in model.get_submodule(name).parameters(recurse=False)}
    fixed = [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in chosen]
    for parameter in fixed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in fixed:
            parameter.requires_grad_()


@contextmanager
def frozen_weights_kept(model: nn.Module) -> Iterator[None]:
    """Restore weights with ``requires_grad=False`` after the block."""
    frozen = [(parameter, parameter.clone()) for parameter in model.parameters() if not parameter.requires_grad]
    yield
    for parameter, before in frozen:
        parameter.copy_(before)
