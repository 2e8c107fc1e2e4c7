"""Momentum contrast on small images, two ranks: a queue of keys in the model, its key encoder an average of the query one."""

from __future__ import annotations

import argparse
import copy
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def encoder(width: int, features: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 4),
        nn.GELU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.GELU(),
        nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 4 * width),
        nn.GELU(),
        nn.Linear(4 * width, features),
    )


class Contrast(nn.Module):
    def __init__(
        self,
        features: int = 128,
        keys: int = 49152,
        momentum: float = 0.99,
        temperature: float = 0.2,
    ) -> None:
        super().__init__()
        self.momentum, self.temperature, self.keys = momentum, temperature, keys
        self.query = encoder(32, features)
        self.key = copy.deepcopy(self.query)
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(keys, features), dim=1))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self) -> None:
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor) -> None:
        gathered = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, keys.contiguous())
        new = torch.cat(gathered)
        start = int(self.pointer)
        self.queue[start : start + len(new)] = new
        self.pointer[0] = (start + len(new)) % self.keys

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        query = F.normalize(self.query(left), dim=1)
        with torch.no_grad():
            self.follow()
            key = F.normalize(self.key(right), dim=1)
        positive = (query * key).sum(1, keepdim=True)
        negative = query @ self.queue.detach().clone().t()
        logits = torch.cat([positive, negative], 1) / self.temperature
        self.enqueue(key)
        return logits, torch.zeros(len(logits), dtype=torch.long)


def wrap(model: nn.Module, variant: str) -> DistributedDataParallel:
    if variant == "slow":
        return DistributedDataParallel(model)
    return DistributedDataParallel(model, broadcast_buffers=False)


def views(images: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    shift = int(torch.randint(-6, 7, (1,), generator=generator))
    noise = torch.randn(images.shape, generator=generator) * 0.05
    return images + noise, torch.roll(images.flip(3), shift, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=180)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = wrap(Contrast(), arguments.variant)
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=0.03, momentum=0.9, weight_decay=1e-4
    )
    generator = torch.Generator().manual_seed(40 + rank)
    pictures = torch.rand(1024, 3, 64, 64, generator=generator)
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        rows = torch.randint(0, len(pictures), (16,), generator=generator)
        left, right = views(pictures[rows], generator)
        optimizer.zero_grad(set_to_none=True)
        logits, target = model(left, right)
        loss = F.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 49:
            print(f"step {step + 1} loss {float(loss):.3f}", flush=True)
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
