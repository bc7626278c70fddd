"""What must be identical for all methods: batches, gradients, step, clock, telemetry, guard, checkpoints.

A method is a plain ``for`` loop over :meth:`Loop.paired_batches`, :meth:`Loop.sequential_batches` or
:meth:`Loop.batches`; the Loop owns everything that would make two methods incomparable if each did it for itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
