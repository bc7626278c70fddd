from __future__ import annotations

import re

import pytest

from gradpivot.data.download.catalogue import ENTRIES, Package, entry
from gradpivot.errors import GradPivotError

LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64}


@pytest.mark.parametrize("known", ENTRIES.values(), ids=list(ENTRIES))
def test_every_entry_is_complete(known):
    assert known.official or known.package
    assert known.licence
    assert known.citation
    digests = [*known.digests.values(), *(one.digest for one in known.official)]
    if known.package is not None and known.package.client != "apt":
        digests.append(known.package.digest)
        assert known.package.version
    for digest in digests:
        algorithm, _, value = digest.partition(":")
        assert re.fullmatch(f"[0-9a-f]{{{LENGTHS[algorithm]}}}", value)
    assert set(known.digests) <= set(known.limits)
    if known.images is None:
        # May run code when it is loaded: only a strong digest will do.
        assert known.digests[known.file].startswith("sha256:")


def test_names():
    assert list(ENTRIES) == ["cifar10", "mnist", "fashion-mnist", "svhn", "resnet18-cifar10", "fid-inception"]
    assert entry("svhn").package is None
    assert str(Package("pip", "name", "1.0")) == "pip package name==1.0"
    with pytest.raises(GradPivotError, match=r"there is no dataset 'x'\. Choose from cifar10, mnist,"):
        entry("x")


def test_what_comes_without_encryption_has_a_sha_256():
    plain = [one for known in ENTRIES.values() for one in known.official if not one.url.startswith("https://")]
    assert {one.digest.partition(":")[0] for one in plain} <= {"sha256"}
