"""The README's snippets run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from gradpivot import ForgetSplit
from gradpivot.data.readers.digits import load_digits
from gradpivot.models.cnn import SmallCNN

ROOT = Path(__file__).parents[2]


def snippets(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_readme_snippets():
    train, test = load_digits()
    torch.manual_seed(0)
    model = SmallCNN()
    split = ForgetSplit.by_class(train, test, 3)
    names = {
        "model": model,
        "train": train,
        "test": test,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-3),
        "forget_loader": DataLoader(Subset(train, split.forget_indices.tolist()), batch_size=50),
        "retain_loader": DataLoader(Subset(train, split.retain_indices.tolist()), batch_size=50),
    }
    found = snippets(ROOT / "README.md")
    assert len(found) == 2
    for snippet in found:
        exec(snippet, names)
    assert 0 <= names["result"].scores.ua <= 1
    assert names["new_model"] is not model
    assert next(model.parameters()).grad is not None


@pytest.mark.parametrize("page", ["quickstart.md", "pivot.md"])
@pytest.mark.slow
def test_pages_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = snippets(ROOT / "docs" / page)
    assert found
    for snippet in found:
        exec(compile(snippet, page, "exec"), names)


def test_files_named_in_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
