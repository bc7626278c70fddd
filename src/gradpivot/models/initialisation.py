"""Re-initialise a model, or some of its modules, wholly or in part."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection

import torch
from torch import nn

from gradpivot.errors import GradPivotError

__all__ = ["reinitialise", "shrink_and_perturb"]


def reinitialise(
    model: nn.Module, factory: Callable[[], nn.Module] | None, only: Collection[str] | None = None
) -> None:
    """Re-initialise the weights and buffers of ``model`` in place.

    With a ``factory`` the values are those of a new model from it. Without one ``reset_parameters()`` is called on
    every module, and a weight that no module resets is an error.

    Args:
        model: The model.
        factory: Makes a new model, or None.
        only: Names of the modules whose own weights and buffers are re-initialised; None for all.

    Raises:
        GradPivotError: naming the weights that were not re-initialised, or a factory whose model does not fit.
    """
    if factory is not None:
        kept = {} if only is None else {
            name: value for name, value in model.state_dict().items() if name.rpartition(".")[0] not in only
        }  # fmt: skip
        # A module is callable, too.
        new = factory() if callable(factory) and not isinstance(factory, nn.Module) else None
        if not isinstance(new, nn.Module):
            kind = type(factory if new is None else new).__name__
            raise GradPivotError(
                f"the factory is or returns a {kind}; pass a function without arguments that returns a new "
                f"torch.nn.Module"
            )
        try:
            model.load_state_dict({**new.state_dict(), **kept})
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise GradPivotError(
                f"the factory returns a different model than the one to unlearn ({first}); pass the factory that "
                f"made it"
            ) from None
        return
    stale = _reset(model, only)
    if stale:
        raise GradPivotError(
            f"{', '.join(stale[:5])}{' …' if len(stale) > 5 else ''} cannot be re-initialised; pass "
            f"factory=make_model, a function that returns a new model"
        )


@torch.no_grad()
def shrink_and_perturb(model: nn.Module, factory: Callable[[], nn.Module] | None, shrink: float) -> None:
    """Set the trainable weights θ to s·θ + (1 − s)·θ_new, with θ_new newly initialised (Ash & Adams, 2020).

    Args:
        model: Changed in place; buffers and frozen weights stay.
        factory: Makes a new model. Without one, θ_new comes from ``reset_parameters()`` of each module.
        shrink: s in [0, 1].

    Raises:
        GradPivotError: naming the weights that cannot be re-initialised, or a factory whose model does not fit or is
            the trained one.
    """
    new = copy.deepcopy(model)
    reinitialise(new, factory)
    pairs = [(o, n) for o, n in zip(model.parameters(), new.parameters(), strict=True) if o.requires_grad]
    if pairs and all(torch.equal(old, fresh) for old, fresh in pairs):
        raise GradPivotError(
            "factory returns the model with its trained weights; it must return a newly initialised one, as before "
            "training on your data"
        )
    for old, fresh in pairs:
        old.mul_(shrink).add_(fresh, alpha=1 - shrink)


@torch.no_grad()
def _reset(model: nn.Module, only: Collection[str] | None) -> list[str]:
    """Reset what can be; the names of the parameters that no module claims.

    Buffers are constants of the architecture or running statistics; the latter are reset with their module.
    """
    claimed: set[int] = set()
    chosen = [module for name, module in model.named_modules() if only is None or name in only]
    for module in chosen:
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            claimed |= {id(parameter) for parameter in module.parameters(recurse=False)}
    asked = {id(parameter) for module in chosen for parameter in module.parameters(recurse=False)}
    return [name for name, parameter in model.named_parameters() if id(parameter) in asked - claimed]
