"""Attacks on a model that claims to have forgotten, and the verdict: is it distinguishable from retraining?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
