"""Pure geometry: the Gram matrix of two gradients to two weights. No model, no data.

A direction in the plane of the forget gradient f and the retain gradient r is two numbers (a, b), meaning
a·f + b·r. Every method that combines the two gradients is a map from their Gram matrix to those numbers.
"""

from gradpivot.geometry.dual_cone import DualConeWeighting
from gradpivot.geometry.gramian import Gram, gram_of
from gradpivot.geometry.pcgrad import PCGradWeighting
from gradpivot.geometry.pivot import Case, PivotWeighting, pivot_weights
from gradpivot.geometry.weighting import WeightedSum, Weighting, Weights

__all__ = [
    "Case",
    "DualConeWeighting",
    "Gram",
    "PCGradWeighting",
    "PivotWeighting",
    "WeightedSum",
    "Weighting",
    "Weights",
    "gram_of",
    "pivot_weights",
]
