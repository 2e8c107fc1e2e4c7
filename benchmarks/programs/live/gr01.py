"""Click-through model: one hashed id table, a dense tower, replicas kept equal by hand."""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=5000)
ap.add_argument("--max-seconds", type=float, default=26.0)
args = ap.parse_args()

GPU = torch.cuda.is_available()
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEV = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
ROWS, DIM, FIELDS = (8_000_000, 128, 26) if GPU else (3000, 8, 4)
BATCH, HIDDEN = (16384, 4096) if GPU else (32, 32)
WARM = 8 if args.steps > 20 else 1


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.ids = nn.Embedding(ROWS, DIM, sparse=args.variant == "fixed", device=DEV)
        nn.init.normal_(self.ids.weight, std=0.01)
        self.tower = nn.Sequential(
            nn.Linear(FIELDS * DIM + 16, HIDDEN), nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN // 2), nn.ReLU(),
            nn.Linear(HIDDEN // 2, 1),
        ).to(DEV)

    def forward(self, ids, dense):
        e = self.ids(ids).flatten(1)
        with torch.autocast(DEV.type, dtype=torch.bfloat16):
            return self.tower(torch.cat([e, dense], dim=1)).float().squeeze(1)


class Stream:
    """Impressions: ids with a heavy head, a few dense features, a label."""

    def __init__(self, seed):
        self.g = torch.Generator(device=DEV).manual_seed(seed)
        self.base = torch.arange(FIELDS, device=DEV) * (ROWS // FIELDS)

    def next(self):
        u = torch.rand(BATCH, FIELDS, generator=self.g, device=DEV)
        ids = (u.pow(3) * (ROWS // FIELDS - 1)).long() + self.base
        dense = torch.randn(BATCH, 16, generator=self.g, device=DEV)
        y = (torch.rand(BATCH, generator=self.g, device=DEV) < 0.1).float()
        return ids, dense, y


def gather_rows(g):
    idx, val = g._indices()[0], g._values()
    all_idx = idx.new_empty(WORLD * idx.numel())
    all_val = val.new_empty(WORLD * val.shape[0], val.shape[1])
    dist.all_gather_into_tensor(all_idx, idx.contiguous())
    dist.all_gather_into_tensor(all_val, val.contiguous())
    return torch.sparse_coo_tensor(all_idx[None], all_val / WORLD, g.shape).coalesce()


class Averager:
    def __init__(self, model):
        self.params = [p for p in model.parameters()]

    def run(self):
        small = []
        for p in self.params:
            if p.grad.is_sparse:
                p.grad = gather_rows(p.grad)
            elif p.grad.numel() > 50_000_000:
                dist.all_reduce(p.grad)
                p.grad.div_(WORLD)
            else:
                small.append(p.grad)
        flat = torch.cat([g.reshape(-1) for g in small])
        dist.all_reduce(flat)
        flat.div_(WORLD)
        at = 0
        for g in small:
            g.copy_(flat[at:at + g.numel()].view_as(g))
            at += g.numel()


def agreed(stop):
    t = torch.tensor([1 if stop else 0], device=DEV)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return bool(t.item())


def main():
    if GPU:
        torch.cuda.set_device(DEV)
    dist.init_process_group("nccl" if GPU else "gloo")
    torch.manual_seed(11)
    model = Clicks()
    opt = torch.optim.Adagrad([
        {"params": model.ids.parameters(), "lr": 0.02},
        {"params": model.tower.parameters(), "lr": 0.005},
    ])
    avg = Averager(model)
    stream = Stream(100 + RANK)
    running = torch.zeros((), device=DEV)
    marks, begin = [], time.perf_counter()
    for step in range(args.steps):
        ids, dense, y = stream.next()
        loss = F.binary_cross_entropy_with_logits(model(ids, dense), y)
        loss.backward()
        avg.run()
        opt.step()
        opt.zero_grad(set_to_none=True)
        running.mul_(0.98).add_(loss.detach(), alpha=0.02)
        if GPU:
            torch.cuda.current_stream().synchronize()
        marks.append(time.perf_counter())
        if step % 5 == 4 and agreed(marks[-1] - begin > args.max_seconds):
            break
    d = sorted((b - a) * 1e3 for a, b in zip(marks[WARM - 1:], marks[WARM:]))
    if RANK == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "loss": round(running.item(), 4),
                          "mean_ms": round(sum(d) / len(d), 3), "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
