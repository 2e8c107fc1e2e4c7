"""Ray Train with one worker: an augmentation in Python in every step."""

import sys

import ray
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

SLOW = "<listcomp> (ray_train.py"  # of augment

STEPS = int(sys.argv[1])


def augment(batch):
    """Row by row."""
    return torch.stack([row.roll(int(row[0])) * 2 for row in batch])


def train():
    """The loop of one worker."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        batch = augment(torch.rand(256, 64))
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit()
