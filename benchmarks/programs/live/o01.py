"""Full-graph node classification with a three-layer GCN on a co-purchase style graph."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "o01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 300
WARMUP = 5


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


def sample_edges(num_nodes, num_pairs, device, seed=0):
    gen = torch.Generator(device=device).manual_seed(seed)
    hub = torch.rand(num_pairs, generator=gen, device=device).pow(2.0)
    src = (hub * num_nodes).long().clamp_(max=num_nodes - 1)
    dst = torch.randint(num_nodes, (num_pairs,), generator=gen, device=device)
    loops = torch.arange(num_nodes, device=device)
    return torch.cat([src, dst, loops]), torch.cat([dst, src, loops])


def gcn_weights(row, col, num_nodes):
    deg = torch.zeros(num_nodes, device=row.device).index_add_(0, row, torch.ones_like(row, dtype=torch.float32))
    inv = deg.rsqrt()
    return inv[row] * inv[col]


def build_adjacency(row, col, num_nodes):
    """Symmetrically normalised adjacency with self loops."""
    weight = gcn_weights(row, col, num_nodes)
    return torch.sparse_coo_tensor(torch.stack([row, col]), weight, (num_nodes, num_nodes))


def build_merged_adjacency(row, col, num_nodes):
    """Symmetrically normalised adjacency with self loops, parallel edges merged."""
    weight = gcn_weights(row, col, num_nodes)
    return torch.sparse_coo_tensor(torch.stack([row, col]), weight, (num_nodes, num_nodes)).coalesce()


class Propagate(torch.autograd.Function):
    """adj @ x for a symmetric adjacency, so that the backward needs no transpose."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adj, grad.contiguous())


class GCNLayer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, adj, x):
        return Propagate.apply(adj, self.lin(x)) + self.bias


class GCN(nn.Module):
    def __init__(self, d_in, d_hidden, num_classes, dropout=0.3):
        super().__init__()
        self.layers = nn.ModuleList([GCNLayer(d_in, d_hidden), GCNLayer(d_hidden, d_hidden),
                                     GCNLayer(d_hidden, num_classes)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(d_hidden), nn.BatchNorm1d(d_hidden)])
        self.dropout = dropout

    def forward(self, adj, x):
        for layer, norm in zip(self.layers, self.norms):
            x = F.dropout(F.relu(norm(layer(adj, x))), self.dropout, self.training)
        return self.layers[-1](adj, x)


ADJACENCY = {"slow": build_adjacency, "fixed": build_merged_adjacency}


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    num_nodes, num_pairs, d_in, d_hidden = (1_000_000, 6_000_000, 128, 64) if device.type == "cuda" else (2000, 8000, 32, 16)
    num_classes = 48
    row, col = sample_edges(num_nodes, num_pairs, device)
    adj = ADJACENCY[args.variant](row, col, num_nodes)
    features = torch.randn(num_nodes, d_in, device=device)
    labels = torch.randint(num_classes, (num_nodes,), device=device)
    train_nodes = torch.randperm(num_nodes, device=device)[: num_nodes // 10]
    train_labels = labels[train_nodes]
    model = GCN(d_in, d_hidden, num_classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=device.type == "cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(adj, features)
        loss = F.cross_entropy(logits.index_select(0, train_nodes), train_labels)
        loss.backward()
        optimizer.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
