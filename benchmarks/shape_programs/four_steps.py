"""Four steps of training, and the end."""

import torch

SLOW = "(four_steps.py:14)"  # in encode

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def encode(batch):
    """Value by value."""
    return torch.tensor([[float(value) % 0.7 for value in row] for row in batch])


for _ in range(4):
    batch = encode(torch.rand(256, 256))
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
