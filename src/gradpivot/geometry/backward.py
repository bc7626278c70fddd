"""The pivot for any PyTorch code: two losses in, ``.grad`` out, then any optimiser steps.

pivot = Pivot(gamma=0.5)
pivot.backward(forget_loss, retain_loss, model.parameters())
optimizer.step()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from gradpivot.errors import GradPivotError, NonFiniteError, number_or_nan
from gradpivot.geometry.combination import combine
from gradpivot.geometry.gradient import Loss, apply_mask, gradient_of, trainable_masks
from gradpivot.geometry.gramian import Gram
from gradpivot.geometry.pivot import PivotWeighting, check_gamma
from gradpivot.geometry.sharding import anywhere, gram_over_shards, local, shaped_like_shard
from gradpivot.geometry.step import PivotStep, describe, limited
from gradpivot.geometry.weighting import Weighting, Weights, check_loss_weights
from gradpivot.runtime import Gradient

__all__ = ["Pivot"]

Gamma = float | Callable[[int], float]


@runtime_checkable
class Scaler(Protocol):
    """The part of :class:`torch.amp.GradScaler` that is used."""

    def scale(self, outputs: Tensor) -> Tensor:
        """The loss times the current scale."""
        ...

    def get_scale(self) -> float:
        """The current scale."""
        ...


class Pivot:
    """Turns two losses into one conflict-free gradient (CUP; Hwang & Lim, 2025).

    Args:
        gamma: The unlearning intensity γ ∈ [0, 1], or a function of the number of backward passes done
            so far (0, 1, …).
        weighting: A weighting to use instead of the pivot
            (:class:`~gradpivot.geometry.WeightedSum`, or a TorchJD weighting through
            :func:`gradpivot.geometry.torchjd.from_torchjd`). Pass either this or ``gamma``.
        max_norm: Maximum norm of the written gradient; None keeps the paper's ‖T‖.
        forget_weight: w_f in T = w_f·f + w_r·r, which only sets the norm.
        retain_weight: w_r in T.

    Attributes:
        steps: Number of backward passes so far, the argument of a γ schedule.
    """

    def __init__(
        self,
        gamma: Gamma | None = None,
        *,
        weighting: Weighting | None = None,
        max_norm: float | None = None,
        forget_weight: float = 1.0,
        retain_weight: float = 1.0,
    ) -> None:
        if (gamma is None) == (weighting is None):
            raise GradPivotError("give either gamma (0 keeps, 1 forgets) or another weighting")
        if gamma is not None and not callable(gamma):
            gamma = check_gamma(gamma)
        if weighting is not None and not callable(weighting):
            raise GradPivotError(f"the weighting is {weighting!r}; pass a function from a Gram matrix to two weights")
        if max_norm is not None and not number_or_nan(max_norm) > 0:
            raise GradPivotError(f"max_norm is {max_norm!r}; give a positive length, or None for no limit")
        check_loss_weights(forget_weight, retain_weight)
        self.gamma = gamma
        self.weighting = weighting
        self.max_norm = max_norm
        self.forget_weight = forget_weight
        self.retain_weight = retain_weight
        self.steps = 0
        self._accumulated: tuple[Gradient, Gradient] | None = None
        self._accumulated_over: list[Tensor] = []

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint must keep: the position in the γ schedule."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
            GradPivotError: if the state is not of a Pivot.
        """
        steps = state.get("steps") if isinstance(state, Mapping) else None
        if not isinstance(steps, int) or steps < 0:
            raise GradPivotError(f"the state is {state!r}; pass the state_dict() of a Pivot, such as {{'steps': 3}}")
        self.steps = steps

    def accumulate(
        self, forget_loss: Loss, retain_loss: Loss, parameters: Iterable[Tensor], *, scaler: Scaler | None = None
    ) -> None:
        """Add one micro-batch's two gradients; the pivot happens once, in :meth:`backward`.

        f and r are *summed*, so divide the losses by the number of micro-batches for a mean. Nothing is
        written to ``.grad``.
        """
        wanted = _trainable(parameters)
        self._check_same(wanted)
        forget = local(gradient_of(_scaled(forget_loss, scaler), wanted))
        retain = local(gradient_of(_scaled(retain_loss, scaler), wanted))
        self._accumulated, self._accumulated_over = self._with_accumulated(forget, retain), wanted

    def backward(
        self,
        forget_loss: Loss,
        retain_loss: Loss,
        parameters: Iterable[Tensor],
        *,
        mask: Sequence[Tensor | None] | None = None,
        scaler: Scaler | None = None,
        add: bool = False,
    ) -> PivotStep:
        """Set ``.grad`` of ``parameters`` to the pivoted gradient and say what happened.

        Args:
            forget_loss: L_f, lower = more forgotten; a scalar tensor, or a function that computes it (then
                the first graph is freed before the second forward pass, which halves activation memory).
            retain_loss: L_r, lower = better kept; from a forward pass of its own.
            parameters: What to fill. A parameter that only one loss touches gets that loss's share; one that
                neither touches is left alone.
            mask: One boolean (or 0/1) tensor or None per parameter: where it is zero neither gradient counts
                and ``.grad`` is zero. Weight decay and momentum still act there.
            scaler: A :class:`torch.amp.GradScaler`: the losses are scaled here, ``.grad`` is scaled as
                ``scaler.step(optimizer)`` expects, and an overflow makes it skip the step.
            add: Add to existing gradients; otherwise existing ones are an error.

        Returns:
            The cosine, φ, the weights and norms (unscaled), and whether the point is Pareto-stationary.

        Raises:
            NonFiniteError: if a gradient is NaN or infinite and no ``scaler`` is there to skip the step.
            GradPivotError: if the losses share a graph, or gradients exist already.
        """
        parameters = _listed(parameters)
        wanted = _trainable(parameters)
        self._check_same(wanted)
        masks = None if mask is None else local(trainable_masks(mask, parameters))
        gamma = self._current_gamma()
        if not add:
            _refuse_existing(wanted)
        forget = local(gradient_of(_scaled(forget_loss, scaler), wanted))
        retain = local(gradient_of(_scaled(retain_loss, scaler), wanted))
        forget, retain = self._with_accumulated(forget, retain)
        self._accumulated, self._accumulated_over = None, []
        if masks is not None:
            apply_mask(forget, masks)
            apply_mask(retain, masks)
        step = self._write(wanted, forget, retain, gamma, scaler.get_scale() if scaler else 1.0, scaler)
        self.steps += 1
        return step

    def _current_gamma(self) -> float | None:
        return check_gamma(self.gamma(self.steps)) if callable(self.gamma) else self.gamma

    def _weights_of(self, gram: Gram, gamma: float | None) -> Weights:
        if self.weighting is None:
            assert gamma is not None
            answer = PivotWeighting(gamma, self.forget_weight, self.retain_weight)(gram)
        else:
            answer = self.weighting(gram)
        # Somebody else's weighting may return anything.
        try:
            weights = Weights(*map(float, answer))
        except (TypeError, ValueError):
            raise GradPivotError(
                f"the weighting returned {answer!r}; it must return two numbers, the weights of f and r"
            ) from None
        if not all(map(math.isfinite, weights)):
            raise NonFiniteError(
                f"the weighting returned {tuple(weights)} for {gram}; weights must be finite. No .grad was written"
            )
        return weights

    def _check_same(self, parameters: list[Tensor]) -> None:
        """Raise if gradients of other parameters, or of these in another order, are accumulated already."""
        before = self._accumulated_over
        if before and list(map(id, before)) != list(map(id, parameters)):
            raise GradPivotError(
                "accumulate() was called with different parameters, or in another order; pass the same list each time, "
                "and use one Pivot per model"
            )

    def _with_accumulated(self, forget: Gradient, retain: Gradient) -> tuple[Gradient, Gradient]:
        if self._accumulated is None:
            return forget, retain
        return _summed(self._accumulated[0], forget), _summed(self._accumulated[1], retain)

    def _write(
        self,
        parameters: list[Tensor],
        forget: Gradient,
        retain: Gradient,
        gamma: float | None,
        scale: float,
        scaler: Scaler | None,
    ) -> PivotStep:
        scaled = gram_over_shards(parameters, forget, retain)
        if not scaled.is_finite:
            if not anywhere(parameters, not _all_finite(forget) or not _all_finite(retain)):
                raise NonFiniteError(
                    "a gradient is longer than 1e154, and its square is beyond float64; divide both losses by a "
                    "constant. No .grad was written"
                )
            if scaler is None:
                raise NonFiniteError(
                    "a gradient is NaN or infinite; lower the learning rate, set max_norm, or use a "
                    "forgetting loss with a floor (unlikelihood). No .grad was written"
                )
            return self._overflow(parameters, forget, retain, gamma)
        gram = Gram(scaled.ff / scale**2, scaled.rr / scale**2, scaled.fr / scale**2)
        weights, norm = limited(self._weights_of(gram, gamma), gram, self.max_norm)
        combined = combine(forget, retain, weights, gram)
        # No number is larger than the norm. With a scaler infinities are how it learns to skip.
        may_overflow = scaler is None and norm > min(torch.finfo(p.dtype).max for p in parameters)
        if may_overflow and anywhere(parameters, not _all_finite(combined)):
            raise NonFiniteError(
                f"the step of length {norm:.3g} has a number beyond the dtype's range; set max_norm. No .grad was "
                f"written"
            )
        for parameter, gradient in zip(parameters, combined, strict=True):
            if gradient is not None:
                gradient = shaped_like_shard(gradient, parameter)
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return describe(gram, weights, norm, gamma)

    def _overflow(self, parameters: list[Tensor], forget: Gradient, retain: Gradient, gamma: float | None) -> PivotStep:
        """Leave the infinities in ``.grad``: that is how a GradScaler learns to skip and to shrink."""
        for parameter, f, r in zip(parameters, forget, retain, strict=True):
            present = [g for g in (f, r) if g is not None]
            if present:
                parameter.grad = shaped_like_shard(sum(present[1:], start=present[0]), parameter)
        nan = math.nan
        return PivotStep(
            gamma=gamma, cosine=nan, phi=nan, forget_weight=nan, retain_weight=nan, forget_norm=nan,
            retain_norm=nan, step_norm=nan, conflict=False, pareto_stationary=False, case=None, overflow=True,
        )  # fmt: skip


def _all_finite(gradient: Gradient) -> bool:
    return all(bool(part.isfinite().all()) for part in gradient if part is not None)


def _trainable(parameters: Iterable[Tensor]) -> list[Tensor]:
    listed = _listed(parameters)
    if not listed:
        raise GradPivotError("no parameter is listed; an iterator such as model.parameters() is empty after one use")
    wanted = [p for p in listed if p.requires_grad]
    if not wanted:
        raise GradPivotError("no parameter is trainable; set requires_grad on at least one")
    if len({id(p) for p in wanted}) != len(wanted):
        raise GradPivotError("a parameter is listed twice; list each once")
    return wanted


def _listed(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The parameters as a list of real leaf tensors.

    Raises:
        GradPivotError: for a module, a single tensor, (name, tensor) pairs, complex or computed tensors.
    """
    if isinstance(parameters, Tensor):
        raise GradPivotError("the parameters are a single tensor; put it in a list")
    if not isinstance(parameters, Iterable):
        raise GradPivotError(f"the parameters are a {type(parameters).__name__}; pass model.parameters()")
    listed = list(parameters)
    for parameter in listed:
        if not isinstance(parameter, Tensor):
            raise GradPivotError(
                f"a parameter is a {type(parameter).__name__}; pass tensors, such as model.parameters()"
            )
        if parameter.is_complex() or not parameter.is_leaf:
            kind = "complex" if parameter.is_complex() else "computed from others"
            raise GradPivotError(f"a parameter is {kind}; only real leaf tensors can be pivoted")
    return listed


def _refuse_existing(parameters: Sequence[Tensor]) -> None:
    # zero_grad(set_to_none=False) leaves zeros, which may be replaced.
    existing = local([p.grad for p in parameters if p.grad is not None])
    if existing and anywhere(parameters, any(g is not None and bool(g.count_nonzero()) for g in existing)):
        raise GradPivotError("a parameter already has a gradient; call optimizer.zero_grad() first, or pass add=True")
    for parameter in parameters:
        parameter.grad = None


def _scaled(loss: Loss, scaler: Scaler | None) -> Loss:
    if scaler is None:
        return loss
    if not isinstance(scaler, Scaler):
        raise GradPivotError(f"the scaler is {scaler!r}; pass a torch.amp.GradScaler or None")
    return lambda: scaler.scale(loss() if callable(loss) else loss)


def _summed(total: Gradient, more: Gradient) -> Gradient:
    """Sum into the memory of ``total``, to avoid a third copy."""
    return [m if t is None else (t if m is None else t.add_(m)) for t, m in zip(total, more, strict=True)]
