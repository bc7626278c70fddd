"""Many runs: cells, the store that survives a kill, engines that work through them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
