"""Fine-tunes a click model on two ranks with large batches built from several smaller ones."""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Clicks(nn.Module):
    def __init__(self, items: int = 30_000, width: int = 96) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.history = nn.GRU(width, width, batch_first=True)
        self.deep = nn.Sequential(
            nn.Linear(2 * width, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1)
        )

    def forward(self, history: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        _, state = self.history(self.items(history))
        return self.deep(torch.cat([state[0], self.items(candidate)], 1)).squeeze(1)


class Impressions:
    def __init__(self, rank: int, rows: int = 20_000) -> None:
        generator = torch.Generator().manual_seed(rank)
        self.history = torch.randint(0, 30_000, (rows, 10), generator=generator)
        self.candidate = torch.randint(0, 30_000, (rows,), generator=generator)
        self.clicked = (self.candidate % 7 == 0).float()
        self.generator = generator

    def batch(self, size: int):
        rows = torch.randint(0, len(self.clicked), (size,), generator=self.generator)
        return self.history[rows], self.candidate[rows], self.clicked[rows]


class Trainer:
    def __init__(self, model: nn.Module, parts: int, variant: str) -> None:
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.parts, self.variant = parts, variant
        self.total = torch.zeros(())

    def part(self, data: Impressions) -> None:
        history, candidate, clicked = data.batch(64)
        loss = (
            F.binary_cross_entropy_with_logits(self.model(history, candidate), clicked) / self.parts
        )
        loss.backward()
        self.total += loss.detach()

    def step(self, data: Impressions) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for place in range(self.parts):
            if self.variant == "slow" or place == self.parts - 1:
                self.part(data)
            else:
                with self.model.no_sync():
                    self.part(data)
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    trainer, data = Trainer(Clicks(), 4, arguments.variant), Impressions(rank)
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        trainer.step(data)
        if rank == 0 and step % 40 == 39:
            print(f"step {step + 1} loss {float(trainer.total) / (step + 1):.4f}", flush=True)
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
