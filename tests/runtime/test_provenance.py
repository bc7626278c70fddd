"""The digest of the source: what decides numbers is in it, what only shows or fetches is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gradpivot
from gradpivot.runtime import provenance


@pytest.mark.parametrize(
    ("file", "decides"),
    [
        ("loop/loop.py", True), ("sweep/work.py", True), ("sweep/original.py", True), ("data/augmentation.py", True),
        ("sweep/store.py", False), ("cli/console.py", False), ("data/fetch.py", False), ("progress.py", False),
    ],
)  # fmt: skip
def test_a_change_of_what_decides_numbers_changes_the_digest(file, decides, tmp_path, monkeypatch):
    package = tmp_path / "gradpivot"
    shutil.copytree(Path(gradpivot.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    before = provenance.code_digest.__wrapped__()
    with (package / file).open("a") as source:
        source.write("# changed\n")
    assert (provenance.code_digest.__wrapped__() != before) is decides


def test_what_decides_samples_is_told():
    """Samples depend on diffusers' network and schedulers as much as on torch."""
    assert "diffusers" in provenance.environment()["packages"]
