"""LightGCN: collaborative filtering by linear propagation over the user-item graph, BPR loss."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


def load_interactions(users, items, count, device):
    u = torch.randint(0, users, (count,), device=device)
    i = (torch.rand(count, device=device).square() * items).long().clamp_(max=items - 1)
    return u, i


def normalized_adjacency(u, i, users, items):
    n = users + items
    rows = torch.cat([u, i + users])
    cols = torch.cat([i + users, u])
    degree = torch.bincount(rows, minlength=n).clamp_(min=1).float()
    values = (degree[rows] * degree[cols]).rsqrt()
    return torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (n, n))


def normalized_adjacency_merged(u, i, users, items):
    return normalized_adjacency(u, i, users, items).coalesce()


class Propagate(torch.autograd.Function):
    """x -> A x with a symmetric A, so the gradient is the same product."""

    @staticmethod
    def forward(ctx, adjacency, x):
        ctx.adjacency = adjacency
        return torch.sparse.mm(adjacency, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adjacency, grad.contiguous())


class LightGCN(nn.Module):
    def __init__(self, users, items, dim, hops):
        super().__init__()
        self.users, self.hops = users, hops
        self.table = nn.Parameter(torch.randn(users + items, dim) * 0.1)

    def forward(self, adjacency):
        x = self.table
        total = x
        for _ in range(self.hops):
            x = Propagate.apply(adjacency, x)
            total = total + x
        total = total / (self.hops + 1)
        return total[: self.users], total[self.users:]


def bpr_loss(user_vec, item_vec, u, pos, neg):
    a = F.embedding(u, user_vec)
    p = F.embedding(pos, item_vec)
    q = F.embedding(neg, item_vec)
    return -F.logsigmoid((a * p).sum(1) - (a * q).sum(1)).mean()


def main():
    args = parse_args(["slow", "fixed"], 140)
    build = {"slow": normalized_adjacency, "fixed": normalized_adjacency_merged}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    users, items, count, dim, batch = (200_000, 100_000, 10_000_000, 64, 8192) if gpu else (50, 40, 400, 8, 16)
    u, i = load_interactions(users, items, count, device)
    adjacency = build(u, i, users, items)
    model = LightGCN(users, items, dim, 3).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=gpu)

    def step():
        pick = torch.randint(0, count, (batch,), device=device)
        negative = torch.randint(0, items, (batch,), device=device)
        user_vec, item_vec = model(adjacency)
        loss = bpr_loss(user_vec, item_vec, u[pick], i[pick], negative)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_loop("o15", args, step)


if __name__ == "__main__":
    main()
