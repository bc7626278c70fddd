"""BS: boundary shrink (Chen et al., 2023, "Boundary Unlearning")."""

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

_LABEL_BATCH_SIZE = 256


@dataclass(frozen=True, kw_only=True)
class BS(Descent):
    """Boundary shrink: train the forget set to the class across the nearest decision boundary (Chen et al., 2023).

    That class is the original model's prediction at the FGSM neighbour x' = x + ε·sign(∇ₓ CE(x, y)), clamped to the
    range of the data. It is computed once, before the first step. The retain set is not used.

    Attributes:
        epsilon: FGSM step size ε.
        low: Minimum input value, for clamping; None for no limit.
        high: Maximum input value, for clamping; None for no limit.
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
        self._check("epsilon", gt=0)
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                self._check(name)
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise GradPivotError(f"BS: low is {self.low} and high is {self.high}; low must be below high")

    def unlearn(self, model: nn.Module, task: Task, split: ForgetSplit, loop: Loop) -> None:
        """Relabel D_f with the original model, then train on those labels."""
        task = Classification.require(task, self.title)
        # Before the first batch, which loads a checkpoint: a resumed run also needs the original model's labels.
        labels = self.labels(
            model, task, loop.eval_batches(model, split.train, split.forget_indices, _LABEL_BATCH_SIZE)
        )
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
        """Compute the new label of each sample, by index.

        Args:
            model: The original model, in eval mode.
            task: Runs the model.
            batches: (indices, batch) pairs that cover D_f.

        Raises:
            GradPivotError: If the inputs are not floating-point tensors, or lie outside [low, high].
        """
        import torch

        found: dict[int, int] = {}
        least, most = float("inf"), float("-inf")
        for indices, batch in batches:
            inputs, targets = task.adapter(batch)
            inputs = _as_float(inputs, task, model)
            if not (isinstance(inputs, torch.Tensor) and inputs.is_floating_point()):
                kind = str(inputs.dtype) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
                raise GradPivotError(
                    f"BS needs gradients of the inputs, but they are {kind}; pass one floating-point tensor"
                )
            least, most = min(least, float(inputs.min())), max(most, float(inputs.max()))
            across = self.neighbours(model, task, inputs, targets)
            with torch.no_grad():
                new = task.outputs(model, across).argmax(1)
            found |= dict(zip(indices.tolist(), new.tolist(), strict=True))
        self._check_range(least, most)
        return found

    def neighbours(self, model: nn.Module, task: Classification, inputs: Tensor, targets: Tensor) -> Tensor:
        """FGSM neighbours x' = clamp(x + ε·sign(∇ₓ CE(x, y)), low, high) (Goodfellow et al., 2015)."""
        import torch
        from torch.nn.functional import cross_entropy

        moved = inputs.detach().clone().requires_grad_()
        # float64: where p_y rounds to 1 in float32, the gradient vanishes and its sign is lost.
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
                f"BS: inputs are in [{least:g}, {most:g}], outside [{self.low}, {self.high}]; set low and high to the "
                f"range of your data, or to None to disable clamping"
            )


def _as_float(inputs: Any, task: Classification, model: nn.Module) -> Any:
    """Scale uint8 images to [0, 1], as a model on ``Pixels`` does itself; return other inputs unchanged."""
    import torch

    if not (isinstance(inputs, torch.Tensor) and inputs.dtype is torch.uint8):
        return inputs
    real = inputs.to(next(model.parameters()).dtype) / 255
    with torch.no_grad():
        same = torch.allclose(task.outputs(model, inputs[:2]), task.outputs(model, real[:2]), rtol=1e-3, atol=1e-3)
    if not same:
        raise GradPivotError(
            "BS needs gradients of the inputs, but this model does not scale uint8 images by 1/255; pass "
            "floating-point images"
        )
    return real


def _loss_to(task: Classification, model: nn.Module, inputs: Tensor, labels: list[int]) -> Tensor:
    import torch
    from torch.nn.functional import cross_entropy

    logits = task.outputs(model, inputs)
    return cross_entropy(logits, torch.tensor(labels, device=logits.device))
