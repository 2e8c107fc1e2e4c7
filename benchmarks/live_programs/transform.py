"""The data set prepares its samples in the process that trains."""

import math
import sys

import torch
from torch.utils.data import DataLoader, Dataset

SLOW = "__getitem__"

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Samples(Dataset):
    """Sines, computed one by one."""

    def __len__(self):
        return 8 * int(sys.argv[1])

    def __getitem__(self, position):
        return torch.tensor([math.sin(position * i) for i in range(256)])


for batch in DataLoader(Samples(), batch_size=8):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
