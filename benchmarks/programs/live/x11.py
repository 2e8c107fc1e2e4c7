"""Full-batch node classification with a graph convolutional network on a symmetric normalized adjacency."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


def make_graph(nodes, degree, device):
    half = nodes * degree // 2
    src = torch.randint(nodes, (half,), device=device)
    dst = (torch.rand(half, device=device) ** 1.5 * nodes).long().clamp_(max=nodes - 1)
    loop = torch.arange(nodes, device=device)
    rows, cols = torch.cat((src, dst, loop)), torch.cat((dst, src, loop))
    adj = torch.sparse_coo_tensor(torch.stack((rows, cols)), torch.ones(rows.numel(), device=device), (nodes, nodes),
                                  check_invariants=False).coalesce()
    rows, cols = adj.indices()
    scale = torch.zeros(nodes, device=device).index_add_(0, rows, adj.values()).rsqrt()
    return torch.sparse_coo_tensor(adj.indices(), adj.values() * scale[rows] * scale[cols], (nodes, nodes),
                                   is_coalesced=True, check_invariants=False)


class SymmetricMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adj, grad.contiguous())


def propagate(adj, x):
    return torch.sparse.mm(adj, x)


def propagate_symmetric(adj, x):
    return SymmetricMatmul.apply(adj, x)


class GraphConv(nn.Module):
    def __init__(self, cin, cout, aggregate):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)
        self.bias = nn.Parameter(torch.zeros(cout))
        self.aggregate = aggregate

    def forward(self, adj, x):
        return self.aggregate(adj, self.lin(x)) + self.bias


class Network(nn.Module):
    def __init__(self, cin, width, classes, aggregate):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(cin, width, aggregate), GraphConv(width, width, aggregate),
                                    GraphConv(width, width, aggregate)])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.out = nn.Linear(width, classes)

    def forward(self, adj, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.dropout(F.relu(norm(conv(adj, x))), 0.3, self.training)
        return self.out(x)


def main():
    args = parse_args(["slow", "fixed"], 180)
    device = torch.device(args.device)
    big = args.device == "cuda"
    nodes, degree, cin, width, classes = (400_000, 40, 100, 128, 47) if big else (300, 8, 16, 16, 5)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    adj = make_graph(nodes, degree, device)
    features = torch.randn(nodes, cin, device=device)
    labels = torch.randint(classes, (nodes,), device=device)
    train_rows = torch.randperm(nodes, device=device)[: nodes // 10]
    aggregate = {"slow": propagate, "fixed": propagate_symmetric}[args.variant]
    model = Network(cin, width, classes, aggregate).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, fused=big)

    def step(i):
        logits = model(adj, features)
        loss = F.cross_entropy(logits[train_rows], labels[train_rows])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_steps("x11", args, step, device)


if __name__ == "__main__":
    main()
