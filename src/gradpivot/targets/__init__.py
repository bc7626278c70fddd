"""Target searches (until, keep), quick frontiers, and recommending a point without a retrained model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
