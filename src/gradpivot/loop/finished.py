"""The checkpoint of a training that was made outside the loop: the loop resumes after its last step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradpivot.geometry import Gram, Weights
from gradpivot.loop.gradients import Gradients
from gradpivot.loop.history import make_row
from gradpivot.loop.motion import RevertibleOptimizer
from gradpivot.loop.precision import Passes

if TYPE_CHECKING:
    from torch import nn

    from gradpivot.loop.optimizers import DescentRecipe

__all__ = ["finished_training"]


def finished_training(
    model: nn.Module, recipe: DescentRecipe, losses: Sequence[float], squares: Sequence[float]
) -> dict[str, Any]:
    """The state of an ordinary training after its last step.

    Args:
        model: The trained model.
        recipe: Its recipe, without gradient clipping.
        losses: Loss of every step.
        squares: Squared norm of every step's gradient.
    """
    direction = Weights(0.0, 1.0)
    rows = []
    for step, (loss, square) in enumerate(zip(losses, squares, strict=True)):
        gram = Gram(0.0, square, 0.0)
        rows.append(make_row(step, Gradients([], [], gram, None, loss), direction, gram.norm_of(*direction)))
    return {
        "descent": RevertibleOptimizer(model, recipe, len(rows)).state_dict(),
        "history": rows,
        "step": len(rows),
        "passes": Passes().state_dict(),
        "attached": None,
    }
