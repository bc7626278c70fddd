"""For us and for people who add methods: a contract every method must keep, and tiny problems with known answers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
