"""Tables, figures and HTML pages for :mod:`gradpivot.results`. Needs no torch; figures need the ``figures`` extra."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
