"""Pre-trains a small causal language model on two ranks, with the bookkeeping of a real job in its loop."""

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


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = (
            self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class Model(nn.Module):
    def __init__(self, vocabulary: int = 2048, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Stopper:
    """Asks all ranks each step whether one of them wants to stop."""

    def __init__(self) -> None:
        self.flag = torch.zeros(1)

    def agreed(self, wanted: bool) -> bool:
        self.flag.fill_(float(wanted))
        dist.all_reduce(self.flag, op=dist.ReduceOp.MAX)
        return bool(self.flag.item())


def mean_over_ranks(value: torch.Tensor) -> float:
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=45)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    generator = torch.Generator().manual_seed(50 + rank)
    tokens = torch.randint(0, 2048, (512, 129), generator=generator)
    stopper = Stopper()
    history: list[float] = []
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        rows = torch.randint(0, len(tokens), (8,), generator=generator)
        batch = tokens[rows]
        optimizer.zero_grad(set_to_none=True)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(mean_over_ranks(loss))
        if rank == 0:
            print(
                json.dumps(
                    {"step": step, "loss": history[-1], "norm": norm.item(), "time": time.time()}
                ),
                flush=True,
            )
        if stopper.agreed(len(history) > 10_000):
            break
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
