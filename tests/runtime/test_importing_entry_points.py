from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.runtime.importing import load_entry_point


def test_a_broken_package_is_named_in_one_line():
    broken = EntryPoint("mine", "no_such_module_of_theirs", "gradpivot.methods")
    with pytest.raises(GradPivotError, match=r"cannot load entry point 'mine' \(gradpivot.methods\)") as error:
        load_entry_point(broken)
    assert "\n" not in str(error.value)
    assert load_entry_point(EntryPoint("ours", "gradpivot.methods.cup:CUP", "gradpivot.methods")).title == "CUP"
