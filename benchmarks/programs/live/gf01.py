"""Trains a composition-based relational graph network for node classification on a synthetic knowledge graph."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gf01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1200
MAX_SECONDS = 42.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
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

class KnowledgeGraph:
    def __init__(self, nodes, edges, relations, features, classes, device):
        g = torch.Generator().manual_seed(11)
        weights = torch.arange(1, relations + 1, dtype=torch.float).pow(-0.4)
        self.num_nodes, self.num_relations = nodes, relations
        self.src = torch.randint(nodes, (edges,), generator=g).to(device)
        dst, _ = torch.randint(nodes, (edges,), generator=g).sort()
        self.dst = dst.to(device)
        self.etype = torch.multinomial(weights, edges, replacement=True, generator=g).to(device)
        self.x = torch.randn(nodes, features, generator=g).to(device)
        self.y = torch.randint(classes, (nodes,), generator=g).to(device)
        self.train_nodes = torch.randperm(nodes, generator=g)[: nodes // 2].to(device)
        deg = torch.zeros(nodes, device=device).index_add_(0, self.dst, torch.ones(edges, device=device))
        self.inv_deg = deg.clamp(min=1).reciprocal().unsqueeze(1)


class RelationTable(nn.Module):
    def __init__(self, relations, dim, variant):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(relations, dim) * 0.1 + 1.0)
        self.variant = variant

    def forward(self, etype):
        if self.variant == "slow":
            return self.weight[etype]
        return F.embedding(etype, self.weight)


class CompositionConv(nn.Module):
    def __init__(self, dim, relations, variant):
        super().__init__()
        self.relation = RelationTable(relations, dim, variant)
        self.neighbour = nn.Linear(dim, dim, bias=False)
        self.loop = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, graph):
        message = h.index_select(0, graph.src) * self.relation(graph.etype)
        pooled = torch.zeros_like(h).index_add(0, graph.dst, message)
        out = self.neighbour(pooled * graph.inv_deg) + self.loop(h)
        return h + F.relu(self.norm(out))


class RelationalNet(nn.Module):
    def __init__(self, features, dim, classes, relations, layers, variant):
        super().__init__()
        self.embed = nn.Linear(features, dim)
        self.convs = nn.ModuleList(CompositionConv(dim, relations, variant) for _ in range(layers))
        self.head = nn.Linear(dim, classes)

    def forward(self, graph):
        h = self.embed(graph.x)
        for conv in self.convs:
            h = conv(h, graph)
        return self.head(h)


class Trainer:
    def __init__(self, model, graph):
        self.model, self.graph = model, graph
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
        self.iteration = 0
        self.history = []

    def train_step(self):
        logits = self.model(self.graph)
        nodes = self.graph.train_nodes
        loss = F.cross_entropy(logits.index_select(0, nodes), self.graph.y.index_select(0, nodes))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.iteration += 1
        if self.iteration % 50 == 0:
            self.history.append(loss.item())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    graph = KnowledgeGraph(nodes=2000 if small else 60_000, edges=8000 if small else 400_000, relations=28,
                           features=64, classes=40, device=device)
    model = RelationalNet(64, 128, 40, graph.num_relations, layers=3, variant=args.variant).to(device)
    trainer = Trainer(model, graph)
    run_loop(args, device, trainer.train_step)


if __name__ == "__main__":
    main()
