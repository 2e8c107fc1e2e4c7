"""Node classification with an edge-featured GIN on partitions of a citation graph."""
import argparse
import json
import os
import random
import statistics
import time
from dataclasses import dataclass

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "z03"


@dataclass
class GraphConfig:
    nodes: int = 200_000
    edges: int = 4_000_000
    feat: int = 100
    edge_feat: int = 8
    hidden: int = 128
    layers: int = 3
    classes: int = 47
    parts: int = 4

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(nodes=200, edges=1000, hidden=16, parts=2)
        return cls()


@dataclass
class RunConfig:
    seed: int = 17
    lr: float = 3e-3
    weight_decay: float = 1e-4
    reproducible: bool = False


RUNS = {"slow": RunConfig(reproducible=True), "fixed": RunConfig(reproducible=False)}


def seed_everything(run):
    random.seed(run.seed)
    np.random.seed(run.seed)
    torch.manual_seed(run.seed)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(run.reproducible, warn_only=True)


@dataclass
class Partition:
    x: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor
    edge_attr: torch.Tensor
    y: torch.Tensor
    train: torch.Tensor

    def to(self, device):
        return Partition(*(getattr(self, f).to(device) for f in self.__dataclass_fields__))


class PartitionedGraph:
    """Cluster-GCN style: a handful of partitions resident on the device, visited in random order."""

    def __init__(self, cfg, device):
        self.parts = [self._make(cfg, s).to(device) for s in range(cfg.parts)]
        self.order = []

    @staticmethod
    def _make(cfg, seed):
        g = np.random.default_rng(seed)
        popularity = g.pareto(1.6, cfg.nodes) + 1.0
        cum = np.cumsum(popularity)
        dst = np.searchsorted(cum, g.random(cfg.edges) * cum[-1]).clip(0, cfg.nodes - 1)
        src = g.integers(0, cfg.nodes, cfg.edges)
        return Partition(
            x=torch.from_numpy(g.standard_normal((cfg.nodes, cfg.feat), dtype=np.float32)),
            src=torch.from_numpy(src), dst=torch.from_numpy(dst),
            edge_attr=torch.from_numpy(g.standard_normal((cfg.edges, cfg.edge_feat), dtype=np.float32)),
            y=torch.from_numpy(g.integers(0, cfg.classes, cfg.nodes)),
            train=torch.from_numpy((g.random(cfg.nodes) < 0.5).astype(np.float32)),
        )

    def next(self):
        if not self.order:
            self.order = random.sample(range(len(self.parts)), len(self.parts))
        return self.parts[self.order.pop()]


class EdgeGIN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden
        self.edge = nn.Linear(cfg.edge_feat, h)
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(h, 2 * h), nn.BatchNorm1d(2 * h), nn.ReLU(), nn.Linear(2 * h, h))

    def aggregate(self, msg, dst, n):
        return msg.new_zeros(n, msg.shape[1]).index_add_(0, dst, msg)

    def forward(self, x, part):
        msg = F.relu(x.index_select(0, part.src) + self.edge(part.edge_attr))
        agg = self.aggregate(msg, part.dst, x.shape[0])
        return self.mlp((1 + self.eps) * x + agg)


class NodeClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encode = nn.Linear(cfg.feat, cfg.hidden)
        self.layers = nn.ModuleList(EdgeGIN(cfg) for _ in range(cfg.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(cfg.hidden) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.hidden, cfg.classes)

    def forward(self, part):
        x = self.encode(part.x)
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.dropout(F.relu(norm(layer(x, part))), 0.2, self.training)
        return self.head(x)


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


def main():
    args = parse_args(["slow", "fixed"])
    run = RUNS[args.variant]
    seed_everything(run)
    cfg = GraphConfig.for_device(args.device)
    dev = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    graph = PartitionedGraph(cfg, dev)
    model = NodeClassifier(cfg).to(dev)
    opt = torch.optim.AdamW(model.parameters(), lr=run.lr, weight_decay=run.weight_decay, fused=args.device == "cuda")
    hits = torch.zeros((), device=dev)

    def step(i):
        part = graph.next()
        logits = model(part)
        loss = (F.cross_entropy(logits, part.y, reduction="none") * part.train).sum() / part.train.sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        hits.lerp_((logits.detach().argmax(-1) == part.y).float().mean(), 0.1)

    default = {"slow": 110, "fixed": 260}[args.variant]
    drive(args, step, args.steps or (default if args.device == "cuda" else 4), warmup=5)


if __name__ == "__main__":
    main()
