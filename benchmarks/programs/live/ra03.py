"""Trains a small convolutional classifier on two ranks; rank 0 keeps a run journal."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(8, outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(8, outside)
        self.skip = nn.Conv2d(inside, outside, 1, stride) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.skip(x))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1),
        Residual(32, 32, 1),
        Residual(32, 64, 2),
        Residual(64, 128, 2),
        Residual(128, 256, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 20),
    )


class Journal:
    """Scalars and distributions of a run, one line of JSON for each entry."""

    def __init__(self, folder: str, every: int) -> None:
        self.every = every
        self.file = open(os.path.join(folder, "journal.jsonl"), "w")

    def scalars(self, step: int, **values: float) -> None:
        self.file.write(json.dumps({"step": step, **values}) + "\n")

    def distributions(self, step: int, model: nn.Module) -> None:
        if step % self.every:
            return
        for name, parameter in model.named_parameters():
            for kind, tensor in (("weight", parameter), ("gradient", parameter.grad)):
                values = tensor.detach().reshape(-1).numpy()
                quantiles = np.percentile(values, [1, 5, 25, 50, 75, 95, 99])
                counts, edges = np.histogram(values, bins=128)
                entry = {"step": step, "name": name, "kind": kind, "quantiles": quantiles.tolist()}
                entry["counts"], entry["edges"] = counts.tolist(), edges.tolist()
                self.file.write(json.dumps(entry) + "\n")
        self.file.flush()


class Images:
    def __init__(self, count: int, rank: int) -> None:
        generator = torch.Generator().manual_seed(rank)
        self.images = torch.randint(
            0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator
        )
        self.labels = torch.randint(0, 20, (count,), generator=generator)

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = (step * size) % (len(self.labels) - size)
        images = self.images[start : start + size].float().div_(255.0).sub_(0.5)
        if step % 2:
            images = images.flip(3)
        return images, self.labels[start : start + size]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    images = Images(4096, rank)
    journal = None
    if rank == 0:
        journal = Journal(
            tempfile.mkdtemp(prefix="run-"), 1 if arguments.variant == "slow" else 100
        )
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        batch, labels = images.batch(step, 6)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(batch), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        if journal is not None:
            journal.scalars(step, loss=float(loss.detach()), lr=optimizer.param_groups[0]["lr"])
            journal.distributions(step, model.module)
    dist.barrier()
    took = 1e3 * (time.perf_counter() - began) / (arguments.steps - 5)
    if rank == 0:
        name = os.path.basename(__file__)[:-3]
        print(
            json.dumps(
                {
                    "case": name,
                    "variant": arguments.variant,
                    "steps": arguments.steps,
                    "ms_per_step": took,
                }
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
