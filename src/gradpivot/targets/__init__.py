"""Above methods: conditions on scores (until, keep), the quick frontier, the choice without an oracle."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
