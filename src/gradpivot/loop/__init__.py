"""What must be identical for all methods: batches, gradients, step, clock, telemetry, guard, checkpoints.

A method is a plain ``for`` loop over :meth:`Loop.paired_batches`, :meth:`Loop.sequential_batches` or
:meth:`Loop.batches`; the Loop owns everything that would make two methods incomparable if each did it for itself.
"""

from gradpivot.loop.batches import Batch, PairedBatch
from gradpivot.loop.gradients import Gradients
from gradpivot.loop.history import finite
from gradpivot.loop.loop import Loop
from gradpivot.loop.outcome import Diverged, Moved, Outcome, Progress, RunnableMethod

__all__ = [
    "Batch",
    "Diverged",
    "Gradients",
    "Loop",
    "Moved",
    "Outcome",
    "PairedBatch",
    "Progress",
    "RunnableMethod",
    "finite",
]
