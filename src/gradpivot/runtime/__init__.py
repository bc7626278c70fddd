"""What every room needs: atomic files, random numbers, provenance, progress, processes, train and eval mode."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
