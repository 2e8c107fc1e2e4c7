"""Trains a deep residual tabular network on two ranks, gradients averaged by hand after the backward pass."""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.up(self.norm(x)).chunk(2, -1)
        return x + self.scale * self.down(F.silu(gate) * value)


class Tabular(nn.Module):
    def __init__(
        self, numeric: int, categories: list[int], width: int = 96, depth: int = 18
    ) -> None:
        super().__init__()
        self.columns = nn.ModuleList([nn.Embedding(count, 8) for count in categories])
        self.enter = nn.Linear(numeric + 8 * len(categories), width)
        self.blocks = nn.ModuleList([Gate(width) for _ in range(depth)])
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, numeric: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        columns = [table(categories[:, place]) for place, table in enumerate(self.columns)]
        x = self.enter(torch.cat([numeric, *columns], 1))
        for block in self.blocks:
            x = block(x)
        return self.leave(x).squeeze(1)


def synchronise(model: nn.Module, world: int, variant: str) -> None:
    """Averages the gradients over all ranks."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if variant == "slow":
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= world
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for gradient in gradients:
        count = gradient.numel()
        gradient.copy_(flat[offset : offset + count].view_as(gradient))
        offset += count


class Table:
    def __init__(self, rows: int, numeric: int, categories: list[int], rank: int) -> None:
        generator = torch.Generator().manual_seed(100 + rank)
        self.numeric = torch.randn(rows, numeric, generator=generator)
        self.categories = torch.stack(
            [torch.randint(0, count, (rows,), generator=generator) for count in categories], 1
        )
        self.target = self.numeric[:, :4].sum(1).sin() + 0.1 * torch.randn(
            rows, generator=generator
        )

    def batches(self, size: int):
        while True:
            order = torch.randperm(len(self.target))
            for start in range(0, len(order) - size + 1, size):
                rows = order[start : start + size]
                yield self.numeric[rows], self.categories[rows], self.target[rows]


def broadcast_weights(model: nn.Module) -> None:
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=450)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    categories = [40, 12, 300, 7, 90, 25]
    model = Tabular(24, categories)
    broadcast_weights(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batches = Table(60_000, 24, categories, rank).batches(256)
    began = 0.0
    running = torch.zeros(())
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        numeric, columns, target = next(batches)
        optimizer.zero_grad(set_to_none=True)
        loss = F.smooth_l1_loss(model(numeric, columns), target)
        loss.backward()
        synchronise(model, world, arguments.variant)
        optimizer.step()
        running += loss.detach()
        if rank == 0 and step % 100 == 99:
            print(f"step {step + 1} loss {float(running) / 100:.4f}", flush=True)
            running.zero_()
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
