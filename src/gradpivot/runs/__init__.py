"""One run from start to end: checks, the run itself, its result, its folder; training the original."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
