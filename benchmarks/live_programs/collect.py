"""The garbage collector is run in every step, over many objects."""

import gc
import sys

import torch

SLOW = "clean_up"

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = [{"number": number} for number in range(200_000)]


def clean_up():
    """Looks at every object that the program keeps."""
    gc.collect()


for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(64, 256)).sum().backward()
    optimizer.step()
    clean_up()
