"""Now and then, at no foreseeable step, an index is built anew in the loop."""

import random
import sys

import torch

SLOW = "rebuild"

torch.set_num_threads(1)
chance = random.Random(3)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def rebuild(rows):
    """Row by row."""
    index = {}
    for number in range(200):
        row = rows[number % len(rows)]
        index[number] = torch.sort(row * 1.5)[1][:8].tolist()
    return index


for _ in range(4 * int(sys.argv[1])):
    batch = torch.randn(128, 256)
    if chance.random() < 1 / 14:
        for _ in range(8):
            rebuild(batch)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
