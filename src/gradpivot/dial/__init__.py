"""γ as a promise: what counts as forgotten, the ramp to it, the trust region of a step, the line search at the end."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
