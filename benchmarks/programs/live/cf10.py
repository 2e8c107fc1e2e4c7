"""Local SGD: ranks train by themselves and average their weights now and then."""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["healthy"], default="healthy")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()

EVERY, BATCH, WIDTH = 8, 256, 512


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(128, WIDTH)
        self.hidden = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = F.gelu(self.inp(x))
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return self.out(x)


@torch.no_grad()
def average(model, world):
    flat = parameters_to_vector(model.parameters())
    dist.all_reduce(flat)
    vector_to_parameters(flat / world, model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    g = torch.Generator().manual_seed(rank)
    teacher = torch.randn(128, 10)
    where = os.path.join(tempfile.mkdtemp(), "log.jsonl")
    times, begin = [], time.perf_counter()
    for step in range(args.steps):
        if step % 8 == 0:
            over = torch.tensor([float(time.perf_counter() - begin > args.max_seconds)])
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
        t0 = time.perf_counter()
        x = torch.randn(BATCH, 128, generator=g)
        y = (x @ teacher).argmax(-1)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % EVERY == EVERY - 1:
            average(model, world)
            stats = torch.stack([loss.detach(), (logits.argmax(-1) == y).float().mean()])
            parts = [torch.empty_like(stats) for _ in range(world)]
            dist.all_gather(parts, stats)
            if rank == 0:
                row = {"step": step, "loss": [p[0].item() for p in parts], "acc": [p[1].item() for p in parts]}
                with open(where, "a") as f:
                    f.write(json.dumps(row) + "\n")
        times.append((time.perf_counter() - t0) * 1e3)
    if rank == 0:
        t = sorted(times[5:])
        print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
