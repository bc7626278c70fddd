from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradpivot.sweep.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made = Store(tmp_path / "store", create=True)
    yield made
    made.close()
