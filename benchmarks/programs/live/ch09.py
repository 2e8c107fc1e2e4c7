"""Image model under DDP; the mean loss is reduced, logged and fenced on every step."""
import argparse
import json
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.b(F.relu(self.a(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=48, blocks=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.body = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def pool(rank, count=256):
    g = torch.Generator().manual_seed(rank)
    y = torch.randint(0, 10, (count,), generator=g)
    return torch.randn(count, 3, 56, 56, generator=g) + y[:, None, None, None] * 0.05, y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="healthy", choices=["healthy"])
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--max-seconds", type=float, default=40)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True)
    images, labels = pool(rank)
    log = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    times, start = [], time.perf_counter()
    for step in range(args.steps):
        t = time.perf_counter()
        pick = torch.randint(0, len(labels), (16,))
        loss = F.cross_entropy(model(images[pick]), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = torch.stack([loss.detach(), torch.tensor(float(time.perf_counter() - start > args.max_seconds))])
        dist.all_reduce(shown)
        dist.barrier()
        if rank == 0:
            log.write(json.dumps({"step": step, "loss": shown[0].item() / world}) + "\n")
            log.flush()
        times.append((time.perf_counter() - t) * 1e3)
        if shown[1].item() > 0:
            break
    if rank == 0:
        kept = sorted(times[3:])
        print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                          "steps": len(times)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
