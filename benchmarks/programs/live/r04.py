"""Full-batch training of a gated graph network on a power-law graph (citations)."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


def lift(x, index):
    return x[index]


def select_rows(x, index):
    return x.index_select(0, index)


class GatedLayer(nn.Module):
    def __init__(self, dim, pick):
        super().__init__()
        self.pick = pick
        self.sender = nn.Linear(dim, dim)
        self.receiver = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.update = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, src, dst, inv_degree):
        gate = torch.sigmoid(self.pick(self.sender(x), src) + self.pick(self.receiver(x), dst))
        message = gate * self.pick(self.value(x), src)
        pooled = torch.zeros_like(x).index_add_(0, dst, message) * inv_degree
        return x + F.relu(self.norm(self.update(x) + pooled))


class GatedGraphNet(nn.Module):
    def __init__(self, features, dim, depth, classes, pick):
        super().__init__()
        self.encode = nn.Linear(features, dim)
        self.layers = nn.ModuleList(GatedLayer(dim, pick) for _ in range(depth))
        self.decode = nn.Linear(dim, classes)

    def forward(self, x, src, dst, inv_degree):
        x = F.relu(self.encode(x))
        for layer in self.layers:
            x = layer(x, src, dst, inv_degree)
        return self.decode(x)


def power_law(nodes, edges, exponent, gen):
    weight = torch.arange(1, nodes + 1, dtype=torch.float64).pow(-exponent)
    cdf = weight.cumsum(0) / weight.sum()
    rank = torch.searchsorted(cdf, torch.rand(edges, generator=gen, dtype=torch.float64)).clamp_(max=nodes - 1)
    return torch.randperm(nodes, generator=gen)[rank]


class Trainer:
    def __init__(self, device, pick):
        nodes, edges, dim, depth = (150_000, 1_500_000, 128, 3) if device == "cuda" else (300, 2000, 16, 2)
        classes, features = 40, 128
        gen = torch.Generator().manual_seed(3)
        src = power_law(nodes, edges, 0.8, gen)
        dst = power_law(nodes, edges, 0.4, gen)
        degree = torch.bincount(dst, minlength=nodes).clamp_(min=1)
        self.src, self.dst = src.to(device), dst.to(device)
        self.inv_degree = (1.0 / degree.float()).unsqueeze(1).to(device)
        self.x = torch.randn(nodes, features, generator=gen).to(device)
        self.y = torch.randint(0, classes, (nodes,), generator=gen).to(device)
        self.model = GatedGraphNet(features, dim, depth, classes, pick).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def step(self, i):
        logits = self.model(self.x, self.src, self.dst, self.inv_degree)
        loss = F.cross_entropy(logits, self.y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args(["slow", "fixed"], 110)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    pick = {"slow": lift, "fixed": select_rows}[args.variant]
    run_loop(args, Trainer(args.device, pick).step, warmup=4)


if __name__ == "__main__":
    main()
