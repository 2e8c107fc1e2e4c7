"""Node classification on a citation-like graph with attention message passing."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 80
WARMUP = 4
CLASSES = 40


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


def citation_graph(nodes, edges, seed=0):
    """Heavy-tailed out-degrees: a few papers are cited by very many."""
    rng = np.random.default_rng(seed)
    rank = np.arange(1, nodes + 1, dtype=np.float64)
    weight = rank ** -0.9
    cdf = np.cumsum(weight / weight.sum())
    src = np.searchsorted(cdf, rng.random(edges)).clip(0, nodes - 1)
    dst = rng.integers(0, nodes, edges)
    order = np.argsort(dst, kind="stable")
    relabel = rng.permutation(nodes)
    src = relabel[src[order]]
    return torch.from_numpy(src), torch.from_numpy(dst[order])


def rows_by_subscript(table, where):
    return table[where]


def rows_by_select(table, where):
    return table.index_select(0, where)


LOOKUP = {"slow": rows_by_subscript, "fixed": rows_by_select}


class Propagate(nn.Module):
    """One attention layer: score every edge, normalise over incoming edges, sum."""

    def __init__(self, width, heads, lookup):
        super().__init__()
        self.heads, self.dim, self.lookup = heads, width // heads, lookup
        self.value = nn.Linear(width, width)
        self.left = nn.Parameter(torch.randn(heads, self.dim) * 0.1)
        self.right = nn.Parameter(torch.randn(heads, self.dim) * 0.1)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def weights(self, v, src, dst, nodes):
        a = (v * self.left).sum(-1)
        b = (v * self.right).sum(-1)
        score = F.leaky_relu(self.lookup(a, src) + self.lookup(b, dst), 0.2)
        score = score.clamp(-12, 12).exp()
        total = torch.zeros(nodes, self.heads, device=v.device).index_add_(0, dst, score)
        return score / (total.index_select(0, dst) + 1e-6)

    def forward(self, h, src, dst):
        nodes = h.shape[0]
        v = self.value(self.norm(h)).view(nodes, self.heads, self.dim)
        w = self.weights(v, src, dst, nodes)
        message = self.lookup(v.flatten(1), src).view(-1, self.heads, self.dim) * w[..., None]
        gathered = torch.zeros(nodes, self.heads * self.dim, device=h.device)
        gathered.index_add_(0, dst, message.flatten(1))
        return h + F.gelu(self.out(gathered))


class Net(nn.Module):
    def __init__(self, inputs, lookup, width=128, depth=3, heads=4):
        super().__init__()
        self.encode = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(Propagate(width, heads, lookup) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, x, src, dst):
        h = self.encode(x)
        for layer in self.layers:
            h = layer(h, src, dst)
        return self.head(h)


class Experiment:
    def __init__(self, args, device):
        nodes, edges = (120_000, 1_500_000) if device.type == "cuda" else (4000, 30_000)
        src, dst = citation_graph(nodes, edges)
        self.src, self.dst = src.to(device), dst.to(device)
        self.x = torch.randn(nodes, 128, device=device)
        self.y = torch.randint(0, CLASSES, (nodes,), device=device)
        self.train = torch.randperm(nodes, device=device)[: nodes // 2]
        self.model = Net(128, LOOKUP[args.variant]).to(device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3, fused=device.type == "cuda")
        self.running = torch.zeros((), device=device)

    def step(self):
        logits = self.model(self.x, self.src, self.dst)
        loss = F.cross_entropy(logits.index_select(0, self.train), self.y[self.train])
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.running.mul_(0.95).add_(loss.detach(), alpha=0.05)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Experiment(args, device).step)


if __name__ == "__main__":
    main()
