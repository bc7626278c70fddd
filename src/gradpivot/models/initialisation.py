"""Re-initialise a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gradpivot.errors import GradPivotError

__all__ = ["reinitialise"]


def reinitialise(model: nn.Module, factory: Callable[[], nn.Module] | None) -> None:
    """Re-initialise every weight and buffer of ``model`` in place.

    With a ``factory`` the values are those of a new model from it. Without one ``reset_parameters()`` is called on
    every module, and a weight that no module resets is an error.

    Raises:
        GradPivotError: naming the weights that were not re-initialised, or a factory whose model does not fit.
    """
    if factory is not None:
        try:
            model.load_state_dict(factory().state_dict())
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise GradPivotError(
                f"the factory returns a different model than the one to unlearn ({first}); pass the factory that "
                f"made it"
            ) from None
        return
    stale = _reset(model)
    if stale:
        raise GradPivotError(
            f"{', '.join(stale[:5])}{' …' if len(stale) > 5 else ''} cannot be re-initialised; pass "
            f"factory=make_model, a function that returns a new model"
        )


@torch.no_grad()
def _reset(model: nn.Module) -> list[str]:
    """Reset what can be; the names of the parameters that no module claims.

    Buffers are constants of the architecture or running statistics; the latter are reset with their module.
    """
    claimed: set[int] = set()
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            claimed |= {id(parameter) for parameter in module.parameters(recurse=False)}
    return [name for name, parameter in model.named_parameters() if id(parameter) not in claimed]
