"""Tasks, which define the forget and retain losses of a model, and forgetting objectives."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
