"""The dial: steer a run to the degree of forgetting that γ sets (goal, ramp, trust region, line search)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
