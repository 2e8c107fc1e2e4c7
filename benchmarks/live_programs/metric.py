"""A metric is computed in Python, element by element, in every step."""

import sys

import torch

SLOW = "accuracy"

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def accuracy(logits):
    """Counts matches one by one."""
    right = 0
    for row in logits[:64].tolist():
        right += max(range(len(row)), key=row.__getitem__) == 0
    return right


for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    output = model(torch.ones(64, 256))
    accuracy(output.detach())
    output.sum().backward()
    optimizer.step()
