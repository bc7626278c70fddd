"""BS: boundary shrink, every forgotten sample to the nearest other class (Chen et al., 2023, "Boundary Unlearning")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gradpivot.errors import GradPivotError
from gradpivot.geometry import Weights
from gradpivot.methods.method import Descent
from gradpivot.tasks import Classification

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from gradpivot.data import ForgetSplit
    from gradpivot.loop import Loop
    from gradpivot.tasks import Task

__all__ = ["BS"]

_LABELLED_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class BS(Descent):
    """Descends CE to the class across the nearest decision boundary, on D_f alone.

    The class is what the original model says at the FGSM neighbour x' = x + ε·sign(∇ₓ CE(x, y)), clamped to the range
    of the data. It is decided once, before the first step.

    Attributes:
        epsilon: ε, how far the neighbour is in each coordinate.
        low: The least value an input can have (neighbours are clamped to it); None for no limit.
        high: The greatest; None for no limit.
    """

    name: ClassVar[str] = "bs"
    title: ClassVar[str] = "BS"
    knob: ClassVar[str | None] = "lr"
    needs_retain: ClassVar[bool] = False
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {"lr": (1e-3, 5e-3, 1e-2), "epsilon": (0.01, 0.1, 1.0, 10.0)}

    epsilon: float = 0.3
    low: float | None = 0.0
    high: float | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon", above=0)
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                self._check(name)
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise GradPivotError(f"BS: low is {self.low} and high is {self.high}; low must be below high")

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Label D_f by the model as it is given, then descend CE to those labels."""
        task = Classification.required(task, self.title)
        # Before the first batch, which loads a checkpoint's weights: a resumed run has the original's labels too.
        labels = self.labels(model, task, loop.pass_over(model, split.train, split.forget_indices, _LABELLED_AT_ONCE))
        for batch in loop.forget_batches(model, task, split, self):
            inputs, targets = task.adapter(batch.data)
            assert batch.indices is not None
            chosen = [labels[index] for index in batch.indices.tolist()]
            gradients = loop.gradients(forget=partial(_loss_to, task, model, inputs, chosen))
            loop.step(gradients, Weights(1.0, 0.0))
            same = sum(new == old for new, old in zip(chosen, targets.reshape(-1).tolist(), strict=True))
            loop.record(unchanged_labels=same / len(chosen))

    def labels(
        self, model: nn.Module, task: Classification, batches: Iterable[tuple[np.ndarray, Any]]
    ) -> dict[int, int]:
        """The new label of each sample, by its index.

        Args:
            model: The original model, in eval mode.
            task: How to run it.
            batches: (Indices, batch) pairs that cover D_f.

        Raises:
            GradPivotError: if the inputs are no tensors of real numbers, or lie outside [low, high].
        """
        import torch

        found: dict[int, int] = {}
        least, most = float("inf"), float("-inf")
        for indices, batch in batches:
            inputs, targets = task.adapter(batch)
            inputs = _as_real(inputs, task, model)
            if not (isinstance(inputs, torch.Tensor) and inputs.is_floating_point()):
                kind = str(inputs.dtype) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
                raise GradPivotError(
                    f"BS moves inputs along a gradient, and they are {kind}; it needs one tensor of real numbers"
                )
            least, most = min(least, float(inputs.min())), max(most, float(inputs.max()))
            across = self.neighbours(model, task, inputs, targets)
            with torch.no_grad():
                new = task.outputs(model, across).argmax(1)
            found |= dict(zip(indices.tolist(), new.tolist(), strict=True))
        self._check_range(least, most)
        return found

    def neighbours(self, model: nn.Module, task: Classification, inputs: Tensor, targets: Tensor) -> Tensor:
        """The FGSM neighbours x' = clamp(x + ε·sign(∇ₓ CE(x, y)), low, high) (Goodfellow et al., 2015)."""
        import torch
        from torch.nn.functional import cross_entropy

        moved = inputs.detach().clone().requires_grad_()
        # float64: where p_y rounds to 1 in float32, CE loses the pull of the true class and the sign with it.
        loss = cross_entropy(
            task.outputs(model, moved).double(), targets.to(moved.device).long().reshape(-1), reduction="sum"
        )
        (slope,) = torch.autograd.grad(loss, moved)
        moved = inputs + self.epsilon * slope.sign()
        return moved if self.low is None and self.high is None else moved.clamp(self.low, self.high)

    def _check_range(self, least: float, most: float) -> None:
        below = self.low is not None and least < self.low
        if below or (self.high is not None and most > self.high):
            raise GradPivotError(
                f"BS: the inputs lie in [{least:g}, {most:g}], outside [{self.low}, {self.high}]; set low and high to "
                f"the range of your data, or to None for no clamping"
            )


def _as_real(inputs: Any, task: Classification, model: nn.Module) -> Any:
    """Pixels stored as bytes in [0, 1], which a model on ``Pixels`` makes of them by itself; the rest as it is."""
    import torch

    if not (isinstance(inputs, torch.Tensor) and inputs.dtype is torch.uint8):
        return inputs
    real = inputs.to(next(model.parameters()).dtype) / 255
    with torch.no_grad():
        same = torch.allclose(task.outputs(model, inputs[:2]), task.outputs(model, real[:2]), rtol=1e-3, atol=1e-3)
    if not same:
        raise GradPivotError(
            "BS moves inputs along a gradient, and the model takes bytes but makes something else of them than x/255; "
            "give it real numbers"
        )
    return real


def _loss_to(task: Classification, model: nn.Module, inputs: Tensor, labels: list[int]) -> Tensor:
    import torch
    from torch.nn.functional import cross_entropy

    logits = task.outputs(model, inputs)
    return cross_entropy(logits, torch.tensor(labels, device=logits.device))
