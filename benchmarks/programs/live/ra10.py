"""Student and averaged teacher on two ranks: the teacher of rank 0 is the one that all ranks use."""

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


class Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.across = nn.Sequential(
            nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.along(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.after(x))


class Network(nn.Module):
    def __init__(
        self, tokens: int = 16, width: int = 224, depth: int = 10, features: int = 64
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(48, width)
        self.blocks = nn.Sequential(*[Mixer(tokens, width) for _ in range(depth)])
        self.leave = nn.Linear(width, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.blocks(self.enter(x)).mean(1))


class Teacher:
    def __init__(self, student: nn.Module, momentum: float, variant: str) -> None:
        self.model = copy.deepcopy(student).requires_grad_(False).eval()
        self.momentum, self.variant = momentum, variant

    @torch.no_grad()
    def update(self, student: nn.Module) -> None:
        mine, theirs = list(self.model.parameters()), list(student.parameters())
        if self.variant == "fixed":
            torch._foreach_lerp_(mine, theirs, 1 - self.momentum)
            return
        if dist.get_rank() == 0:
            torch._foreach_lerp_(mine, theirs, 1 - self.momentum)
        for parameter in mine:
            dist.broadcast(parameter, 0)

    @torch.no_grad()
    def targets(self, views: torch.Tensor) -> torch.Tensor:
        return (self.model(views) / 0.05).softmax(1)


def pair(data: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randint(0, len(data), (8,), generator=generator)
    clean = data[rows]
    return clean + 0.1 * torch.randn(clean.shape, generator=generator), clean


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=160)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    student = DistributedDataParallel(Network())
    teacher = Teacher(student.module, 0.996, arguments.variant)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-4, fused=True)
    generator = torch.Generator().manual_seed(70 + rank)
    data = torch.randn(2048, 16, 48, generator=generator)
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        noisy, clean = pair(data, generator)
        target = teacher.targets(clean)
        optimizer.zero_grad(set_to_none=True)
        loss = -(target * (student(noisy) / 0.1).log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        teacher.update(student.module)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {float(loss.detach()):.3f}", flush=True)
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
