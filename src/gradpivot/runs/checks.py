"""Pre-flight checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradpivot.data import ForgetSplit, Loader
from gradpivot.errors import GradPivotError
from gradpivot.geometry import is_sharded
from gradpivot.loop import has_batchnorm
from gradpivot.methods import CUP, Descent, Method
from gradpivot.runtime import evaluating, isolated
from gradpivot.tasks import Objective, Task, check_per_sample, check_task

if TYPE_CHECKING:
    from gradpivot.tasks import Predictions

__all__ = ["check_fits", "check_run", "check_scorable"]


def check_run(model: nn.Module, split: ForgetSplit, method: Method, task: Task, *, seed: int = 0) -> None:
    """Raise if a run cannot start with these arguments.

    Args:
        model: The original model.
        split: The data to forget and to retain.
        method: The method and its settings.
        task: Runs the model on a batch.
        seed: The seed of the run.

    Raises:
        GradPivotError: If an argument is invalid or does not fit the others.
    """
    _check_types(model, split)
    _check_model(model)
    if not isinstance(method, Method):
        raise GradPivotError(f"the method is {method!r}; pass a method with its settings, such as CUP(gamma=0.5)")
    if not isinstance(seed, int):
        raise GradPivotError(f"the seed is {seed!r}; pass an integer")
    check_task(task)
    check_fits(model, split, task)
    if method.is_dialled:
        _check_degree(model, split, task, uncertainty=method.uses_validation(split.kind, task))
    if isinstance(method, CUP) and method.restarts(split.kind, task):
        _check_statistics(model, split, method.retain_batch_size, "shrink=1")
    elif isinstance(method, Descent) and method.batchnorm == "recalibrate":
        _check_statistics(model, split, None, "batchnorm='frozen'")


def check_scorable(model: nn.Module, split: ForgetSplit, task: Task | None) -> None:
    """Raise if a model cannot be scored; without a task only what holds for any scorer is checked."""
    _check_types(model, split)
    _check_materialised(model)
    if task is not None:
        check_task(task)
        check_fits(model, split, task)


def _check_types(model: Any, split: Any) -> None:
    if not isinstance(model, nn.Module):
        raise GradPivotError(f"the model is a {type(model).__name__}; pass a trained torch.nn.Module")
    if not isinstance(split, ForgetSplit):
        raise GradPivotError(
            f"the split is a {type(split).__name__}; name what to forget, for example "
            f"ForgetSplit.by_class(train, test, 3)"
        )


def check_fits(
    model: nn.Module, split: ForgetSplit, task: Task, *, called: str = "the model", advice: str = ""
) -> None:
    """Raise if the model does not run on the data. Takes a forward pass over two samples of each set.

    Args:
        model: The model; its mode is restored.
        split: Provides the training, test and validation data.
        task: Runs the model on a batch.
        called: What the error message calls the model.
        advice: Further advice for the error message.

    Raises:
        GradPivotError: If the pass fails, or its predictions are not one per sample.
    """
    sample = split.train[int(split.retain_indices[0])]
    pictures = [part for part in _parts(sample) if type(part).__module__.startswith("PIL.")]
    if pictures:
        raise GradPivotError(
            "a sample holds a PIL image, which torch cannot stack; give the data set a transform that returns tensors, "
            "such as torchvision.transforms.ToTensor()"
        )
    weight = next(iter(model.parameters()), None)
    if weight is None:
        raise GradPivotError("the model has no parameters to unlearn")
    _check_materialised(model)
    # The test set is only scored after the run, when it is too late to find that the model does not take it.
    sets = [("data", split.train, split.retain_indices), ("test data", split.test, split.test_indices)]
    if split.validation is not None:
        sets.append(("validation data", split.validation, np.arange(len(split.validation))))
    for name, dataset, indices in sets:
        with isolated(0), torch.no_grad(), evaluating(model):
            try:
                batch, samples = _probe_batch(dataset, indices, model)
                if (found := task.probe(model, batch)) is not None:
                    _check_predictions(task, found, samples)
            except GradPivotError as error:
                if dataset is split.train:
                    raise
                raise GradPivotError(f"{name}: {error}") from None
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                kinds = ", ".join(_describe(part) for part in _parts(dataset[int(indices[0])]))
                raise GradPivotError(
                    f"{called} cannot be run on the {name} ({reason}); a sample is ({kinds}), and the weights are "
                    f"{_dtype_name(weight.dtype)}{advice and '; '}{advice}"
                ) from error


def _probe_batch(dataset: Any, indices: np.ndarray, model: nn.Module) -> tuple[Any, int]:
    """A batch of the first two samples, and its size: there may be only one."""
    two = indices[:2]
    device = next(model.parameters()).device
    return next(Loader(dataset, device, seed=0).batches([two], epoch=0)), len(two)


def _check_predictions(task: Task, predictions: Predictions, samples: int) -> None:
    name = type(task).__name__
    check_per_sample(f"the confidence from {name}.predict", predictions.confidence, samples, share=True)
    check_per_sample(f"the correctness from {name}.predict", predictions.correct, samples)


def _check_statistics(model: nn.Module, split: ForgetSplit, batch_size: int | None, instead: str) -> None:
    """Raise if BatchNorm statistics of retain data would be those of a single sample."""
    if not has_batchnorm(model):
        return
    if len(split.retain_indices) < 2:
        raise GradPivotError(
            f"BatchNorm statistics are recomputed on retain data, but a single sample has no variance; use {instead}"
        )
    if batch_size == 1:
        raise GradPivotError(
            f"BatchNorm statistics come from retain batches, but retain_batch_size is 1; use at least 2, or {instead}"
        )


def _check_degree(model: nn.Module, split: ForgetSplit, task: Task, *, uncertainty: bool) -> None:
    """Raise unless the task returns one degree of forgetting per sample."""
    if not (task.measures_uncertainty if uncertainty else task.is_gradual):
        return  # The method raises a more specific error.
    measure = getattr(task, "uncertainty" if uncertainty else "forgetting")
    objective = Objective("pre-flight", lambda outputs, _: outputs.mean(), None, lambda losses, _: losses.mean())
    what = f"the {'uncertainty' if uncertainty else 'degree'} from {type(task).__name__}.{measure.__name__}"
    with isolated(0), torch.no_grad(), evaluating(model):
        batch, samples = _probe_batch(split.train, split.forget_indices, model)
        degree = measure(model, batch, objective).degree
    otherwise = ", or run without the dial (CUP: dial='angle', other methods: no gamma)"
    check_per_sample(what, degree, samples, share=uncertainty, otherwise=otherwise)


def _parts(sample: Any) -> Sequence[Any]:
    return sample if isinstance(sample, tuple | list) else [sample]


def _describe(part: Any) -> str:
    """Type, or dtype and shape, of a part of a sample."""
    shape = getattr(part, "shape", None)
    return type(part).__name__ if shape is None else f"{_dtype_name(part.dtype)} {tuple(shape)}"


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _check_materialised(model: nn.Module) -> None:
    """Raise if a weight or buffer has no numbers yet."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise GradPivotError(f"the weight {name} is lazy and has no values yet; run the model on a batch first")
        if tensor.is_meta:
            raise GradPivotError(
                f"the weight {name} is on the meta device and has no values; load them with "
                f"model.to_empty(device='cpu') and load_state_dict(…)"
            )


def _check_model(model: nn.Module) -> None:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise GradPivotError(
            "the model is wrapped in DistributedDataParallel; pass model.module, unlearn() reduces gradients itself"
        )
    _check_materialised(model)
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise GradPivotError(
                f"the weight {name} is sharded, but unlearn() copies whole models; pass the model before fully_shard, "
                f"or use Pivot in your own loop"
            )
        if not math.isfinite(float(parameter.detach().double().sum())):
            raise GradPivotError(
                f"the weight {name} contains NaN or infinity before unlearning; load an intact checkpoint"
            )
