"""Classification: cross-entropy to retain, a forgetting objective on the logits to forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from gradpivot.errors import GradPivotError
from gradpivot.tasks.batch import Adapter, input_and_target
from gradpivot.tasks.task import Forgetting, Predictions, UncertaintyTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpivot.tasks.objectives import Objective

__all__ = ["Classification"]


@dataclass(frozen=True)
class Classification(UncertaintyTask):
    """Classification with a model that returns n×k logits.

    Attributes:
        adapter: Maps a sample or batch to (input, target). An input may be a tensor, a tuple of positional arguments or
            a dictionary of keyword arguments.
    """

    adapter: Adapter = input_and_target

    def target_of(self, sample: Any) -> Any:
        """The label of one sample."""
        return self.adapter(sample)[1]

    def outputs(self, model: Callable[..., Any], inputs: Any) -> Tensor:
        """The model's logits for the adapter's inputs, in float32 or higher precision."""
        logits = _logits_in(_call(model, inputs))
        # Half precision is too coarse for log p near zero.
        return logits.float() if logits.dtype in _half_types() else logits

    def logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits (n×k) and targets (n) of a batch."""
        inputs, targets = self.adapter(batch)
        logits = self.outputs(model, inputs)
        if not logits.is_floating_point():
            raise GradPivotError(
                f"the model returns {str(logits.dtype).removeprefix('torch.')} numbers; classification needs logits in "
                f"floating point, before any argmax"
            )
        given, shape = targets.shape, logits.shape
        targets = _flat_labels(targets, logits)
        if len(shape) != 2 or shape[1] < 2 or not shape[0] == len(targets) == (*given, 1)[0]:
            raise GradPivotError(
                f"the model returns logits {tuple(shape)} for labels {tuple(given)}; classification needs one label "
                f"and two or more logits per sample. For sequences or segmentation, write a task with one degree per "
                f"sample"
            )
        # On other devices this would synchronise on every batch; there torch asserts itself.
        if targets.is_cpu and not _within(targets, shape[1]):
            raise GradPivotError(
                f"a label is outside 0 … {shape[1] - 1}, the range of the model's outputs; map labels to it"
            )
        return logits, targets

    def retain_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Mean cross-entropy −log p_θ(y|x)."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(*self.logits(model, batch))

    def smoothed_loss(self, model: nn.Module, batch: Any, smoothing: float) -> Tensor:
        """Mean cross-entropy with label smoothing (Szegedy et al., 2016, §7).

        Raises:
            GradPivotError: If a subclass overrides :meth:`retain_loss`.
        """
        from torch.nn.functional import cross_entropy

        if type(self).retain_loss is not Classification.retain_loss:
            raise GradPivotError(
                f"label smoothing needs the default cross-entropy, but {type(self).__name__} overrides retain_loss; "
                f"use label_smoothing=0"
            )
        return cross_entropy(*self.logits(model, batch), label_smoothing=smoothing)

    def forget_loss(self, model: nn.Module, batch: Any, objective: Objective) -> Tensor:
        """Mean of ``objective`` over the batch.

        Raises:
            GradPivotError: For an objective of another task.
        """
        if objective.takes != "logits":
            raise GradPivotError(
                f"the objective {objective.name} is for {objective.takes} prediction, not classification; use "
                f"unlikelihood, negative_ce or random_label"
            )
        return objective(*self.logits(model, batch))

    def forgetting(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss` and whether each sample is misclassified; the mean over D_f is UA.

        If a subclass overrides ``forget_loss``, the degree needs a second forward pass.
        """
        if type(self).forget_loss is not Classification.forget_loss:
            loss, predictions = self._forget_and_predict(model, batch, objective)
            return Forgetting(loss, (~predictions.correct).double())
        # Without the confidence, which takes several operations and is not needed here.
        logits, targets = self.logits(model, batch)
        return Forgetting(objective(logits, targets), (logits.argmax(1) != targets).double())

    def uncertainty(self, model: nn.Module, batch: Any, objective: Objective) -> Forgetting:
        """:meth:`forget_loss` and the uncertainty 1 − p_θ(y|x) of each sample."""
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
        """Confidence in the true label, and correctness."""
        return _predictions(*self.logits(model, batch))


def _predictions(logits: Tensor, targets: Tensor) -> Predictions:
    # float64: near 1 a float32 softmax has a resolution of 6e-8, which gives the membership attack ties.
    confidence = logits.double().softmax(1).gather(1, targets[:, None])[:, 0]
    return Predictions(confidence, logits.argmax(1) == targets)


@cache
def _label_type() -> Any:
    import torch

    return torch.int64


@cache
def _half_types() -> tuple[Any, ...]:
    import torch

    return torch.float16, torch.bfloat16


def _flat_labels(targets: Tensor, logits: Tensor) -> Tensor:
    """Labels as one dimension of int64 beside the logits; even an operation that changes nothing takes time."""
    if targets.device != logits.device or targets.dtype is not _label_type() or targets.ndim != 1:
        return targets.to(logits.device).long().reshape(-1)
    return targets


def _within(targets: Tensor, classes: int) -> bool:
    """Whether all labels are in 0 … classes − 1."""
    labels = targets.tolist()
    return not labels or (min(labels) >= 0 and max(labels) < classes)


def _call(model: Callable[..., Any], inputs: Any) -> Any:
    # Not isinstance(inputs, Mapping) first, which takes longer on the tensors of nearly all models.
    if hasattr(inputs, "ndim") and not hasattr(inputs, "keys"):
        return model(inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, list | tuple) else model(inputs)


def _logits_in(outputs: Any) -> Tensor:
    """Extract the logits from a tensor, a dictionary or a Hugging Face output object."""
    if hasattr(outputs, "ndim") and not hasattr(outputs, "keys"):
        tensor: Tensor = outputs
        return tensor
    if isinstance(outputs, Mapping):
        if "logits" not in outputs:
            raise GradPivotError(
                f"the model returns a dictionary with {', '.join(map(repr, outputs)) or 'no keys'}, without 'logits'; "
                f"wrap it in a module that returns logits"
            )
        outputs = outputs["logits"]
    found = getattr(outputs, "logits", outputs)
    if not hasattr(found, "ndim"):
        raise GradPivotError(
            f"the model returns a {type(found).__name__}; it must return logits, or an object with 'logits'. Wrap it "
            f"in a module that does"
        )
    logits: Tensor = found
    return logits
