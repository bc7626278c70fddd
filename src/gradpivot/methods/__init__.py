"""Methods: one file each, found by being here. A new method is one file and one test.

Third parties register theirs with an entry point in the group ``gradpivot.methods`` that names their module.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
