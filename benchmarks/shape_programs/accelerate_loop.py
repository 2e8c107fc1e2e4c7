"""Accelerate: a metric is computed sample by sample in every step."""

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

SLOW = "accuracy"

torch.set_num_threads(1)


def accuracy(outputs, labels):
    """One sample at a time."""
    right = 0
    for output, label in zip(outputs, labels, strict=True):
        right += int(output.argmax().item() == label.item())
    return right / len(labels)


accelerator = Accelerator(cpu=True)
steps = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
data = TensorDataset(torch.randn(steps * 256, 64), torch.randint(0, 10, (steps * 256,)))
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=256)
)
for inputs, labels in loader:
    optimizer.zero_grad()
    outputs = model(inputs)
    accelerator.backward(torch.nn.functional.cross_entropy(outputs, labels))
    optimizer.step()
    accuracy(outputs, labels)
