"""For us and for people who add methods: a contract every method must keep, and tiny problems with known answers."""

from gradpivot.testing.contract import MethodContract
from gradpivot.testing.problems import Guarded, blobs, trained

__all__ = ["Guarded", "MethodContract", "blobs", "trained"]
