"""What is looked at before anything is computed: an error after hours of work loses them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from gradpivot.data import ForgetSplit, Loader
from gradpivot.errors import GradPivotError
from gradpivot.geometry import is_sharded
from gradpivot.methods import Method
from gradpivot.runtime import evaluating, isolated
from gradpivot.tasks import Objective, Task, check_per_sample, check_task

if TYPE_CHECKING:
    from gradpivot.tasks import Predictions

__all__ = ["check_fits", "check_run"]


def check_run(model: nn.Module, split: ForgetSplit, method: Method, task: Task, *, seed: int = 0) -> None:
    """Raise, before anything is computed, if one of these is not what it should be.

    Args:
        model: The trained model.
        split: What to forget.
        method: How.
        task: How to run the model on a batch.
        seed: The run's.
    """
    _check_model(model)
    if not isinstance(method, Method):
        raise GradPivotError(f"the method is {method!r}; give one with its settings, such as CUP(gamma=0.5)")
    if not isinstance(seed, int):
        raise GradPivotError(f"the seed is {seed!r}; give a whole number")
    if not isinstance(split, ForgetSplit):
        raise GradPivotError(
            f"the split is a {type(split).__name__}; name what to forget, for example "
            f"ForgetSplit.by_class(train, test, 3)"
        )
    check_task(task)
    check_fits(model, split, task)
    if method.is_dialled:
        _check_degree(model, split, task, doubts=method.uses_validation(split.kind, task))
    if getattr(method, "batchnorm", None) == "recalibrate" and len(split.retain_indices) < 2:
        raise GradPivotError(
            "batchnorm is 'recalibrate', and one sample to keep has no variance; use batchnorm='frozen'"
        )


def check_fits(
    model: nn.Module, split: ForgetSplit, task: Task, *, called: str = "the model", advice: str = ""
) -> None:
    """Raise, in one line, if the model cannot be run on the data: one pass over two of the samples to keep.

    Args:
        model: In any mode; it gets that back.
        split: Whose training data.
        task: How to run the model on a batch.
        called: What the model is to whoever reads the error.
        advice: What to do, if there is more to say than what the data and the weights are.
    """
    sample = split.train[int(split.retain_indices[0])]
    pictures = [part for part in _parts(sample) if type(part).__module__.startswith("PIL.")]
    if pictures:
        raise GradPivotError(
            "a sample holds a PIL image, which torch cannot stack; give the data set a transform that makes tensors, "
            "such as torchvision.transforms.ToTensor()"
        )
    weight = next(iter(model.parameters()), None)
    if weight is None:
        raise GradPivotError("the model has no parameters; there is nothing to unlearn")
    with isolated(0), torch.no_grad(), evaluating(model):
        try:
            batch, samples = _two_of(split.retain_indices, model, split)
            if (made := task.probe(model, batch)) is not None:
                _check_predictions(task, made, samples)
        except GradPivotError:
            raise
        except Exception as error:
            told = " ".join(f"{type(error).__name__}: {error}".split())
            kinds = ", ".join(_kind(part) for part in _parts(sample))
            raise GradPivotError(
                f"{called} cannot be run on the data ({told}); a sample is ({kinds}), and the weights are "
                f"{_short(weight.dtype)}{advice and '; '}{advice}"
            ) from error


def _two_of(indices: np.ndarray, model: nn.Module, split: ForgetSplit) -> tuple[Any, int]:
    """A batch of the first two samples, and how many these are: there may be one."""
    two = indices[:2]
    device = next(model.parameters()).device
    return next(Loader(split.train, device, seed=0).batches([two], epoch=0)), len(two)


def _check_predictions(task: Task, told: Predictions, samples: int) -> None:
    name = type(task).__name__
    check_per_sample(f"the confidence that {name}.predict gives", told.confidence, samples, share=True)
    check_per_sample(f"what {name}.predict gives as correct", told.correct, samples)


def _check_degree(model: nn.Module, split: ForgetSplit, task: Task, *, doubts: bool) -> None:
    """Raise unless a task that a run is steered by gives one degree per sample; the loss does not matter here."""
    if not (task.measures_uncertainty if doubts else task.is_gradual):
        return  # The method says what is missing.
    told = getattr(task, "uncertainty" if doubts else "forgetting")
    anything = Objective("pre-flight", lambda outputs, _: outputs.mean(), None, lambda losses, _: losses.mean())
    what = f"the {'doubt' if doubts else 'degree'} that {type(task).__name__}.{told.__name__} gives"
    with isolated(0), torch.no_grad(), evaluating(model):
        batch, samples = _two_of(split.forget_indices, model, split)
        degree = told(model, batch, anything).degree
    otherwise = ", or run without the dial (dial='angle' of CUP, no gamma of others), which needs none"
    check_per_sample(what, degree, samples, share=doubts, otherwise=otherwise)


def _parts(sample: Any) -> Sequence[Any]:
    return sample if isinstance(sample, tuple | list) else [sample]


def _kind(part: Any) -> str:
    """A part of a sample in a few words."""
    shape = getattr(part, "shape", None)
    return type(part).__name__ if shape is None else f"{_short(part.dtype)} {tuple(shape)}"


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise GradPivotError(f"the model is a {type(model).__name__}; give a trained torch.nn.Module")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise GradPivotError(
            "the model is wrapped in DistributedDataParallel; give model.module, unlearn() reduces itself"
        )
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise GradPivotError(
                f"the weight {name} is sharded, and unlearn() copies whole models; give the model before fully_shard, "
                f"or use Pivot in a loop of your own"
            )
        if not math.isfinite(float(parameter.detach().double().sum())):
            raise GradPivotError(f"the weight {name} holds NaN or infinity before unlearning; load a sound checkpoint")
