"""Methods: one file each, found by being here. A new method is one file and one test.

Third parties register theirs with an entry point in the group ``gradpivot.methods`` that names their module.
"""

from gradpivot.methods.registry import list_methods, make_method, method_class

__all__ = ["list_methods", "make_method", "method_class"]
