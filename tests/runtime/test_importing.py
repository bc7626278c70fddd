from __future__ import annotations

import sys
import uuid

import pytest

from gradpivot.errors import GradPivotError
from gradpivot.runtime.importing import import_path


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    """A module in the current folder, which is not on the path."""
    name = f"own_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text("VALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_the_current_folder_is_searched_last_and_only_if_needed(own, tmp_path):
    before = list(sys.path)
    assert import_path("json:dumps")
    with pytest.raises(GradPivotError, match="no module named 'no_such_module'"):
        import_path("no_such_module:f")
    assert sys.path == before
    assert import_path(f"{own}:VALUE") == 3
    assert sys.path == [*before, str(tmp_path)]
    assert import_path(f"{own}:VALUE") == 3
    assert sys.path == [*before, str(tmp_path)]


def test_an_installed_module_wins_and_says_so(own, tmp_path):
    (tmp_path / "colorsys.py").write_text("mine = 3\n")
    with pytest.raises(GradPivotError, match=r"no attribute 'mine'; an installed module has that name, .* colorsys.py"):
        import_path("colorsys:mine")
