"""How much we write, and what we don't: ../shared/spec/style.md in the parts that a test can see."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r"\b(is told|are told|in the place of|a page a|taken before|whatever the)\b", re.IGNORECASE)
WRITTEN = sorted(
    file
    for folder in ("src", "docs", "examples", "benchmarks")
    for file in (ROOT / folder).rglob("*")
    if file.suffix in (".py", ".pyi", ".md", ".yaml", ".js", ".html") and not {"_build", "vendor"} & set(file.parts)
)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_docs_without_results_are_at_most_21000_words():
    pages = [file for file in WRITTEN if file.suffix == ".md" and "docs" in file.parts and "results" not in file.parts]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 21_000


def test_no_foreign_phrases():
    found = [
        f"{file.relative_to(ROOT)}: {hit[0]}"
        for file in [*WRITTEN, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for hit in FOREIGN.finditer(file.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize("page", [f for f in WRITTEN if f.suffix == ".md" and "docs" in f.parts], ids=lambda f: f.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+\.(?:md|png|gif|svg))", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_links_have_a_text():
    """Sphinx would fill in the title; a page read on a Git host would show nothing."""
    empty = [file for file in WRITTEN if file.suffix == ".md" and "[](" in file.read_text(encoding="utf-8")]
    assert not empty
