"""Every fifth step is saved."""

import io
import sys

import torch

SLOW = "save"

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
optimizer = torch.optim.Adam(model.parameters())


def save():
    """The whole state, while training waits."""
    torch.save([model.state_dict(), optimizer.state_dict()], io.BytesIO())


for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(8, 512)).sum().backward()
    optimizer.step()
    if step % 5 == 4:
        save()
