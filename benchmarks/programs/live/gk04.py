"""Trains a two-layer graph recommender (users and items, weighted neighbourhood sums) with a pairwise loss."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gk04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Bipartite:
    """Interaction graph with a popularity law over the items."""

    def __init__(self, users, items, edges, device):
        rank = torch.arange(items, device=device, dtype=torch.float64)
        cdf = torch.cumsum((rank + 5) ** -0.8, 0)
        cdf /= cdf[-1].clone()
        draw = torch.rand(edges, device=device, dtype=torch.float64)
        item = torch.searchsorted(cdf, draw).clamp_(max=items - 1)
        self.item = torch.randperm(items, device=device)[item]
        self.user = torch.randint(0, users, (edges,), device=device)
        du = torch.bincount(self.user, minlength=users).clamp(min=1).float()
        di = torch.bincount(self.item, minlength=items).clamp(min=1).float()
        self.norm = (du[self.user] * di[self.item]).rsqrt().unsqueeze(1)
        self.users, self.items = users, items


class Recommender(nn.Module):
    def __init__(self, graph, dim, layers, variant):
        super().__init__()
        self.graph, self.layers = graph, layers
        self.user = nn.Parameter(torch.randn(graph.users, dim) * 0.1)
        self.item = nn.Parameter(torch.randn(graph.items, dim) * 0.1)
        self.mix = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(layers))
        self.lookup = self.take if variant == "fixed" else self.pick

    @staticmethod
    def pick(table, index):
        return table[index]

    @staticmethod
    def take(table, index):
        return table.index_select(0, index)

    def aggregate(self, table, source, target, size):
        messages = self.lookup(table, source) * self.graph.norm
        return torch.zeros(size, table.shape[1], device=table.device).index_add_(0, target, messages)

    def forward(self):
        g, u, i = self.graph, self.user, self.item
        sum_u, sum_i = u, i
        for mix in self.mix:
            new_u = self.aggregate(i, g.item, g.user, g.users)
            new_i = self.aggregate(u, g.user, g.item, g.items)
            u, i = F.leaky_relu(mix(new_u), 0.2), F.leaky_relu(mix(new_i), 0.2)
            sum_u, sum_i = sum_u + u, sum_i + i
        return sum_u / (self.layers + 1), sum_i / (self.layers + 1)


def pairwise_loss(users, items, u, pos, neg):
    e = users.index_select(0, u)
    good = (e * items.index_select(0, pos)).sum(1)
    bad = (e * items.index_select(0, neg)).sum(1)
    return F.softplus(bad - good).mean()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    users, items, edges, dim, batch = (200000, 50000, 2000000, 128, 65536) if big else (300, 100, 2000, 16, 64)
    graph = Bipartite(users, items, edges, device)
    model = Recommender(graph, dim, 2, args.variant).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=big)
    history = []

    def step():
        chosen = torch.randint(0, edges, (batch,), device=device)
        negative = torch.randint(0, items, (batch,), device=device)
        out_u, out_i = model()
        loss = pairwise_loss(out_u, out_i, graph.user[chosen], graph.item[chosen], negative)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
        if len(history) == 50:
            print(f"loss {torch.stack(history).mean().item():.4f}", flush=True)
            history.clear()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
