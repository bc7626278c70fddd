"""Unlearning methods, one per file. Modules in this package are registered automatically.

Third-party packages register a module with an entry point in the group ``gradpivot.methods``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
