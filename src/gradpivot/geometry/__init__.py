"""Geometry of two gradients: from their Gram matrix to two weights. No model, no data.

A direction in the plane of the forget gradient f and the retain gradient r is two numbers (a, b), meaning
a·f + b·r. Every method that combines the two gradients is a map from their Gram matrix to those numbers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
