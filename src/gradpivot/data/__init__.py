"""What to forget (``ForgetSplit``), the order samples come in, readers of known data sets, download and cache."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
