"""A single run: pre-flight checks, execution, result and folder; training the original model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
