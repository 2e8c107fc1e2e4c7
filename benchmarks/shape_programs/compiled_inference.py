"""Compiled inference on the CPU: the answer is read value by value."""

import sys

import torch

SLOW = "in compilation"  # most of so short a run; then read_out

torch.set_num_threads(1)
model = torch.compile(
    torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
)


def read_out(outputs):
    """Value by value."""
    return [outputs[i, j].item() for i in range(outputs.shape[0]) for j in range(16)]


with torch.inference_mode():
    for number in range(10 * int(sys.argv[1])):
        read_out(model(torch.full((32, 128), float(number))))
