"""Unlearn a class from your own nn.Module and dataset with dictionary batches. Runs in a few seconds.

python examples/own_model_and_data.py
"""

import torch
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
from torch import nn
from torch.utils.data import Dataset

from gradpivot import CUP, Classification, ForgetSplit, Retrain, trace, unlearn


class Wine(Dataset):
    """178 wines with 13 measurements each; samples are dictionaries."""

    def __init__(self, rows: slice) -> None:
        table = load_wine()
        order = torch.randperm(len(table.target), generator=torch.Generator().manual_seed(0))[rows]
        self.measurements = torch.tensor(scale(table.data), dtype=torch.float32)[order]
        self.cultivar = torch.tensor(table.target)[order]

    def __len__(self) -> int:
        return len(self.cultivar)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"measurements": self.measurements[index], "cultivar": self.cultivar[index]}


class Taster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 3)

    def forward(self, measurements: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(measurements))


# The adapter returns the input and the label of a batch.
task = Classification(adapter=lambda batch: (batch["measurements"], batch["cultivar"]))
train, test = Wine(slice(0, 130)), Wine(slice(130, None))
# Forget one of the three cultivars.
split = ForgetSplit.by_class(train, test, classes=2, target=task.target_of)

recipe = Retrain(lr=0.05, epochs=30, batch_size=16)
shared = {"task": task, "factory": Taster}
# Train a stand-in for your own model, on all wines but one.
nearly_all = ForgetSplit.by_index(train, test, [0], target=task.target_of)
model = unlearn(Taster(), nearly_all, recipe, **shared).model

reference = unlearn(model, split, recipe, **shared)
frontier = trace(model, split, CUP(), gammas=(0, 0.3, 0.6, 0.9, 1), reference=reference, **shared)
for point in frontier.points:
    scores = point.scores
    print(f"γ = {point.knob}: forgotten {scores.ua:.0%}, kept {scores.ra:.1%}, test {scores.ta:.1%}")
chosen = frontier.pick("UA>=95", best="RA")
print(f"{chosen.label} forgets enough; the frontier comes within {100 * frontier.distance():.1f} points of retraining")
