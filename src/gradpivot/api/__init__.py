"""The verbs: unlearn, trace, score. What the command line, sweeps and integrations go through."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
