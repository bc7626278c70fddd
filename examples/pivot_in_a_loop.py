"""Add Pivot to an existing training loop with two losses. Runs in a few seconds.

python examples/pivot_in_a_loop.py
"""

import torch
from torch import nn

from gradpivot import Pivot
from gradpivot.data.readers.gaussians import load_gaussians

train, _ = load_gaussians()
points, labels = train.tensors
forget = labels == 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
cross_entropy = nn.CrossEntropyLoss()
for _ in range(200):
    optimizer.zero_grad()
    cross_entropy(model(points), labels).backward()
    optimizer.step()

pivot = Pivot(gamma=0.5, max_norm=1.0)
for number in range(30):
    optimizer.zero_grad()
    step = pivot.backward(
        -cross_entropy(model(points[forget]), labels[forget]),
        cross_entropy(model(points[~forget]), labels[~forget]),
        model.parameters(),
    )
    optimizer.step()
    if number % 10 == 0:
        weights = f"{step.forget_weight:.2f} and {step.retain_weight:.2f}"
        print(f"step {number:2}: cos(f, r) = {step.cosine:+.2f}, weights {weights}")

correct = model(points).argmax(1) == labels
print(f"forgotten: {1 - correct[forget].float().mean():.1%}, kept: {correct[~forget].float().mean():.1%}")
