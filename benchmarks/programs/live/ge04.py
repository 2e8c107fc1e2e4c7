"""Streaming account risk scores: node features change every tick, predictions are smoothed over a graph."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1300
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


def power_law_edges(nodes, count, generator):
    """Undirected edges without repeats whose ends are drawn from a heavy-tailed law."""
    def ends(n):
        u = torch.rand(n, generator=generator)
        return (nodes * u.pow(1.6)).long().clamp_(max=nodes - 1)
    shuffle = torch.randperm(nodes, generator=generator)
    source, target = shuffle[ends(count)], shuffle[torch.randint(0, nodes, (count,), generator=generator)]
    keep = source != target
    key = torch.unique(torch.minimum(source, target)[keep] * nodes + torch.maximum(source, target)[keep])
    return torch.stack([key // nodes, key % nodes])


def normalized_adjacency(edges, nodes, device):
    loops = torch.arange(nodes).expand(2, -1)
    index = torch.cat([edges, edges.flip(0), loops], dim=1).to(device)
    degree = torch.zeros(nodes, device=device).scatter_add_(
        0, index[0], torch.ones(index.shape[1], device=device))
    scale = degree.rsqrt()
    weights = scale[index[0]] * scale[index[1]]
    return torch.sparse_coo_tensor(index, weights, (nodes, nodes))


class Encoder(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.ReLU(),
                                    nn.Linear(hidden, outputs))

    def forward(self, x):
        return self.layers(x)


class Personalized(nn.Module):
    """Predict, then propagate: h <- (1 - a) A h + a h0."""

    def __init__(self, hops, restart):
        super().__init__()
        self.hops, self.restart = hops, restart

    def forward(self, adjacency, initial):
        state = initial
        for _ in range(self.hops):
            spread = torch.sparse.mm(adjacency, state)
            state = torch.lerp(spread, initial, self.restart)
        return state


class FeatureStream:
    def __init__(self, nodes, width, device, touched):
        self.device, self.touched = device, touched
        self.generator = torch.Generator(device=device).manual_seed(9)
        self.features = torch.randn(nodes, width, device=device, generator=self.generator)

    def tick(self):
        nodes, width = self.features.shape
        rows = torch.randint(0, nodes, (self.touched,), device=self.device, generator=self.generator)
        fresh = torch.randn(self.touched, width, device=self.device, generator=self.generator)
        self.features[rows] = fresh
        return self.features, rows


class RiskService:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        generator = torch.Generator().manual_seed(1)
        edges = power_law_edges(cfg["nodes"], cfg["edges"], generator)
        self.adjacency = normalized_adjacency(edges, cfg["nodes"], device)
        if variant == "fixed":
            self.adjacency = self.adjacency.coalesce()
        self.encoder = Encoder(cfg["width"], cfg["hidden"], cfg["classes"]).to(device).eval()
        self.smooth = Personalized(cfg["hops"], 0.1)
        self.stream = FeatureStream(cfg["nodes"], cfg["width"], device, cfg["touched"])
        self.alerts = 0

    @torch.inference_mode()
    def step(self):
        features, rows = self.stream.tick()
        logits = self.smooth(self.adjacency, self.encoder(features))
        risk = logits[rows].softmax(-1)[:, 0]
        top = risk.topk(self.cfg["alerts"])
        self.alerts += len(top.values.cpu())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(nodes=200_000, edges=2_600_000, width=96, hidden=128, classes=64, hops=8, touched=4096, alerts=50)
    else:
        cfg = dict(nodes=2000, edges=9000, width=16, hidden=16, classes=8, hops=3, touched=64, alerts=5)
    run_loop(args, device, RiskService(cfg, device, args.variant).step)


if __name__ == "__main__":
    main()
