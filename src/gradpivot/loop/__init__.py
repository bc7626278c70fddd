"""The training loop that all methods share: batches, gradients, steps, telemetry, divergence checks, checkpoints.

A method is a plain ``for`` loop over :meth:`Loop.paired_batches`, :meth:`Loop.sequential_batches` or
:meth:`Loop.batches`. Everything else is shared, so that methods are comparable.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
