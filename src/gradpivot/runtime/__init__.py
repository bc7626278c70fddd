"""Shared infrastructure: atomic writes, randomness, provenance, progress, data parallelism, train and eval mode."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
