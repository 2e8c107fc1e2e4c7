"""Inference without optimizer and loader; what goes into the model is prepared in Python."""

import sys

import torch

SLOW = "prepare"

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)


def prepare(request):
    """Counts words of a made-up text."""
    counts = [0.0] * 256
    for position in range(20_000):
        counts[(position * request) % 256] += 1.0
    return torch.tensor(counts)


with torch.no_grad():
    for request in range(int(sys.argv[1])):
        model(prepare(request)[None]).sum().item()
