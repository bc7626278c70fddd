"""Classification: cross-entropy keeps, a forgetting objective on the same logits forgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.tasks.batch import Adapter, input_and_target
from gradpivot.tasks.task import DoubtingTask, Forgetting, Predictions

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.objectives import Objective

__all__ = ["Classification"]


@dataclass(frozen=True)
class Classification(DoubtingTask):
    """A model from inputs to n×k logits.

    Attributes:
        adapter: From a sample or batch to (input, target). Inputs may be a tensor, a tuple (passed as
            positional arguments) or a dictionary (passed by name).
    """

    adapter: Adapter = input_and_target

    def target_of(self, sample: Any) -> Any:
        """The label of one sample."""
        return self.adapter(sample)[1]

    def outputs(self, model: Callable[..., Any], inputs: Any) -> Tensor:
        """The model's logits for inputs as the adapter gives them, in float32 at least."""
        logits = _logits_in(_call(model, inputs))
        # Whatever the network computes in: eight bits of log p are too few for a loss near zero.
        return logits.float() if logits.dtype in _half_types() else logits

    def logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The model's logits (n×k) and the targets (n) of a batch."""
        inputs, targets = self.adapter(batch)
        logits = self.outputs(model, inputs)
        given = tuple(targets.shape)
        targets = targets.to(logits.device).long().reshape(-1)
        one_each = len(logits) == len(targets) == (*given, 1)[0]
        if logits.ndim != 2 or logits.shape[1] < 2 or not one_each:
            raise GradPivotError(
                f"the model gives logits {tuple(logits.shape)} for labels {given}; classification needs one label and "
                f"one row of at least two logits per sample. For sequences or segmentation write a task of your own "
                f"that gives one degree per sample"
            )
        # On other devices this would stop the queue at every batch; there torch asserts by itself.
        if targets.device.type == "cpu" and not _within(targets, logits.shape[1]):
            raise GradPivotError(
                f"a label is outside 0 … {logits.shape[1] - 1}, the model's outputs; map the labels to that range"
            )
        return logits, targets

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean cross-entropy −log p_θ(y|x)."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(*self.logits(model, batch))

    def smoothed_loss(self, model: nn.Module, batch: Any, smoothing: float) -> Tensor:
        """The mean cross-entropy to (1 − ε)·y + ε·uniform (Szegedy et al., 2016, §7).

        Raises:
            GradPivotError: if :meth:`retain_loss` is the user's own: there is nothing known to smooth.
        """
        from torch.nn.functional import cross_entropy

        if type(self).retain_loss is not Classification.retain_loss:
            raise GradPivotError(
                f"label smoothing changes the cross-entropy, and {type(self).__name__} has a retain_loss of its own; "
                f"use label_smoothing=0"
            )
        return cross_entropy(*self.logits(model, batch), label_smoothing=smoothing)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """The mean of ``objective`` on the batch's logits.

        Raises:
            GradPivotError: for an objective of another task.
        """
        if objective.takes != "logits":
            raise GradPivotError(
                f"the objective {objective.name} is one of {objective.takes} prediction, not of classification; use "
                f"unlikelihood, negative_ce or random_label"
            )
        return objective(*self.logits(model, batch))

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss`, and which samples are misclassified: their share of D_f is UA.

        A forget loss of somebody's own may be anything: beside it the degree takes a forward pass of its own.
        """
        loss, predictions = self._forget_and_predict(model, batch, objective)
        return Forgetting(loss, (~predictions.correct).double())

    def doubting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss`, and the doubt 1 − p_θ(y|x) of each sample."""
        loss, predictions = self._forget_and_predict(model, batch, objective)
        return Forgetting(loss, 1 - predictions.confidence)

    def _forget_and_predict(self, model: nn.Module, batch: Any, objective: Objective) -> tuple[Tensor, Predictions]:
        if type(self).forget_loss is not Classification.forget_loss:
            from torch import no_grad

            with no_grad():
                predictions = self.predict(model, batch)
            return self.forget_loss(model, batch, objective), predictions
        logits, targets = self.logits(model, batch)
        return objective(logits, targets), _predictions(logits.detach(), targets)

    def predict(self, model: nn.Module, batch: Any) -> Predictions:
        """True-label confidence and correctness."""
        return _predictions(*self.logits(model, batch))


def _predictions(logits: Tensor, targets: Tensor) -> Predictions:
    # float64: near 1 a float32 softmax has steps of 6e-8 and the membership attack sees ties.
    confidence = logits.double().softmax(1).gather(1, targets[:, None])[:, 0]
    return Predictions(confidence, logits.argmax(1) == targets)


def _half_types() -> tuple[Any, ...]:
    import torch

    return torch.float16, torch.bfloat16


def _within(targets: Tensor, classes: int) -> bool:
    """Whether all labels are 0 … classes − 1; two numbers in one pass, because every batch is asked."""
    if targets.numel() == 0:
        return True
    least, most = targets.aminmax()
    return int(least) >= 0 and int(most) < classes


def _call(model: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, list | tuple) else model(inputs)


def _logits_in(outputs: Any) -> Tensor:
    """The logits of a plain tensor, a dictionary or an output object (Hugging Face style)."""
    if isinstance(outputs, Mapping):
        if "logits" not in outputs:
            raise GradPivotError(
                f"the model returns a dictionary with {', '.join(map(repr, outputs)) or 'nothing'}, and no 'logits'; "
                f"wrap it in a module that returns them"
            )
        outputs = outputs["logits"]
    found = getattr(outputs, "logits", outputs)
    if not hasattr(found, "ndim"):
        raise GradPivotError(
            f"the model returns a {type(found).__name__}; it must return logits, or something with 'logits'. "
            f"Wrap it in a module that does"
        )
    logits: Tensor = found
    return logits
