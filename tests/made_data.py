"""Small data sets in the official forms, and a catalogue that knows them by their digests. No network."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from gradpivot.data.download import catalogue
from gradpivot.data.download.catalogue import Download, ImageFiles, Package
from gradpivot.data.readers.png import encode_rgb

TRAIN, TEST = 20, 6
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def digest(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def made_images(shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "train_images": draw.integers(0, 256, (TRAIN, *shape), dtype=np.uint8),
        "train_labels": draw.permutation(np.arange(TRAIN) % 10),
        "test_images": draw.integers(0, 256, (TEST, *shape), dtype=np.uint8),
        "test_labels": draw.integers(0, 10, TEST),
    }


def cifar_batches(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    size = TRAIN // 5
    for i in range(5):
        part = slice(i * size, (i + 1) * size)
        yield BATCHES[i], arrays["train_images"][part], arrays["train_labels"][part]
    yield "test_batch", arrays["test_images"], arrays["test_labels"]


def cifar_binary(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {
        f"{name}.bin": b"".join(bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True))
        for name, images, labels in cifar_batches(arrays)
    }


def cifar_pickles(arrays: Mapping[str, np.ndarray], protocol: int = 2) -> dict[str, bytes]:
    """As the authors' Python 2 wrote them: a dictionary with byte strings for keys."""
    return {
        name: pickle.dumps(
            {
                b"batch_label": b"batch",
                b"labels": labels.tolist(),
                b"data": images.reshape(len(images), -1),
                b"filenames": [b"a.png"] * len(images),
            },
            protocol=protocol,
        )
        for name, images, labels in cifar_batches(arrays)
    }


def chunk(kind_and_body: tuple[bytes, bytes]) -> bytes:
    kind, body = kind_and_body
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def cifar_sheets(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    found = {
        f"{name}.png": encode_rgb(np.ascontiguousarray(images.reshape(len(images), 3, 1024).transpose(0, 2, 1)))
        for name, images, _ in cifar_batches(arrays)
    }
    for part in ("train", "test"):
        found[f"{part}_lables.json"] = json.dumps(arrays[f"{part}_labels"].tolist()).encode()
    return found


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def idx_files(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    parts = ("train_images", "train_labels", "test_images", "test_labels")
    plain = [arrays[part][:, 0] if part.endswith("images") else arrays[part] for part in parts]
    return {name: idx(array) for name, array in zip(IDX, plain, strict=True)}


def gzipped(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def mat_files(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    found = {}
    for part in ("train", "test"):
        labels = arrays[f"{part}_labels"]
        file = io.BytesIO()
        held = {
            "X": arrays[f"{part}_images"].transpose(2, 3, 1, 0),
            "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None],
        }
        scipy.io.savemat(file, held, do_compression=True)
        # The first 116 bytes are words with the time of day in them: the same data, another digest a second later.
        found[f"{part}_32x32.mat"] = b"MATLAB 5.0 MAT-file, made for a test".ljust(116) + file.getvalue()[116:]
    return found


def tar(files: Mapping[str, bytes], folder: str = "", mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zipped(files: Mapping[str, bytes], folder: str = "") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"{folder}{name}", content)
    return file.getvalue()


def deb(files: Mapping[str, bytes], folder: str = "./usr/share/", ending: str = "xz") -> bytes:
    mode = f"w:{ending}"
    parts = {
        "debian-binary": b"2.0\n",
        f"control.tar.{ending}": tar({"./control": b"odd"}, mode=mode),
        f"data.tar.{ending}": tar(files, folder, mode),
    }
    packed = b"!<arch>\n"
    for name, content in parts.items():
        packed += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        packed += content + b"\n" * (len(content) % 2)
    return packed


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GRADPIVOT_DATA", str(folder))
    return folder


@pytest.fixture
def cifar(cache, monkeypatch) -> dict[str, np.ndarray]:
    """A catalogue whose CIFAR-10 is 26 made images, without sources; the images."""
    arrays = made_images((3, 32, 32))
    digests = {name: digest(content, "sha1") for name, content in cifar_binary(arrays).items()}
    change(
        monkeypatch, "cifar10", digests=digests, images=ImageFiles((3, 32, 32), TRAIN, TEST), official=(), package=None
    )
    return arrays


@pytest.fixture
def clothes(cache, monkeypatch) -> dict[str, np.ndarray]:
    """A catalogue whose MNIST and Fashion-MNIST are 26 made images, without sources; the images."""
    arrays = made_images((1, 28, 28))
    digests = {name: digest(content) for name, content in idx_files(arrays).items()}
    for name in ("mnist", "fashion-mnist"):
        change(
            monkeypatch, name, digests=digests, images=ImageFiles((1, 28, 28), TRAIN, TEST), official=(), package=None
        )
    return arrays


@pytest.fixture
def svhn(cache, monkeypatch) -> dict[str, np.ndarray]:
    """A catalogue whose SVHN is 26 made images, without sources; the images."""
    arrays = made_images((3, 32, 32))
    digests = {name: digest(content, "md5") for name, content in mat_files(arrays).items()}
    change(monkeypatch, "svhn", digests=digests, images=ImageFiles((3, 32, 32), TRAIN, TEST), official=())
    return arrays


@pytest.fixture
def weights(cache, monkeypatch) -> bytes:
    """A catalogue whose ResNet-18 is a few bytes, without a source; the bytes."""
    content = zipped({"archive/data.pkl": b"weights"})
    change(monkeypatch, "resnet18-cifar10", digests={"model_test.pt": digest(content)}, package=None)
    return content


def change(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """Let an entry of the catalogue be another one."""
    monkeypatch.setitem(catalogue.ENTRIES, name, replace(catalogue.ENTRIES[name], **changes))


def packaged(monkeypatch: pytest.MonkeyPatch, name: str, client: Any, content: bytes) -> None:
    """Let an entry come from a package of a registry."""
    change(monkeypatch, name, package=Package(client, "carrier", "1.0", digest(content)))


def served(monkeypatch: pytest.MonkeyPatch, name: str, server: Server, files: Mapping[str, bytes]) -> None:
    """Let an entry come from an official source."""
    server.files.update(files)
    downloads = tuple(Download(f"{server.url}/{n}", digest(content, "md5"), 2**20) for n, content in files.items())
    change(monkeypatch, name, official=downloads)


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put a program on the PATH, alone: ``client("npm", "the script")``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}")

    def make(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)

    return make


class Server:
    """A server whose answers a test decides.

    Attributes:
        files: What it serves, by name.
        ranges: Whether it can continue a file.
        cut: Drop the connection after so many bytes of each answer.
        silent: Never answer.
        asked: The Range header of each request.
        status: Answer with this error.
        encoding: What it calls the packing of its files.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges, self.cut, self.silent, self.asked = True, None, False, []  # type: ignore[var-annotated]
        self.status: int | None = None
        self.encoding: str | None = None
        self.url = ""
        self.released = threading.Event()


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            if state.silent:
                state.released.wait(30)
                return
            if state.status is not None:
                self.send_error(state.status)
                return
            content = state.files[self.path.rpartition("/")[2]]
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.ranges else 0
            if start >= len(content) and start:
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            if state.encoding:
                self.send_header("Content-Encoding", state.encoding)
            self.end_headers()
            self.wfile.write(content[start:] if state.cut is None else content[start : start + state.cut])

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    # A proxy of the machine's must not come between.
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = "127.0.0.1"
    try:
        yield state
    finally:
        state.released.set()
        http.shutdown()
        http.server_close()
        if before is None:
            del os.environ["no_proxy"]
        else:
            os.environ["no_proxy"] = before
