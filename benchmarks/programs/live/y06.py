"""Full-graph training of a graph convolutional network on a citation-like graph."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_edges(nodes, pairs, device):
    src = (nodes * torch.rand(pairs, device=device).pow(1.5)).long()
    dst = torch.randint(nodes, (pairs,), device=device)
    key = torch.unique(torch.cat((src * nodes + dst, dst * nodes + src)))
    key = key[torch.randperm(len(key), device=device)]
    return torch.stack((key // nodes, key % nodes))


def add_self_loops(edge_index, nodes):
    own = edge_index[0] == edge_index[1]
    loop = torch.arange(nodes, device=edge_index.device).expand(2, -1)
    return torch.cat((edge_index[:, ~own], loop), dim=1)


def normalized_adjacency(edge_index, nodes):
    index = add_self_loops(edge_index, nodes)
    deg = torch.bincount(index[1], minlength=nodes).float()
    inv = deg.pow(-0.5)
    return torch.sparse_coo_tensor(index, inv[index[0]] * inv[index[1]], (nodes, nodes))


def normalized_adjacency_canonical(edge_index, nodes):
    return normalized_adjacency(edge_index, nodes).coalesce()


class Propagate(torch.autograd.Function):
    """y = A x for a symmetric A, hence the gradient is A g."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adj, grad.contiguous())


class GCN(nn.Module):
    def __init__(self, fan_in, hidden, classes, depth):
        super().__init__()
        self.inp = nn.Linear(fan_in, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(depth))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, adj):
        x = self.inp(x)
        for lin, norm in zip(self.layers, self.norms):
            h = Propagate.apply(adj, lin(x))
            x = x + F.dropout(F.relu(norm(h)), 0.3, self.training)
        return self.out(x)


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        nodes, pairs, fan_in, hidden, classes, depth = (
            (300_000, 3_500_000, 128, 128, 40, 4) if args.device == "cuda" else (500, 3000, 16, 16, 5, 2))
        build = {"slow": normalized_adjacency, "fixed": normalized_adjacency_canonical}[args.variant]
        self.adj = build(make_edges(nodes, pairs, args.device), nodes)
        self.x = torch.randn(nodes, fan_in, device=args.device)
        self.y = torch.randint(classes, (nodes,), device=args.device)
        self.train_idx = torch.randperm(nodes, device=args.device)[: nodes // 2]
        self.y_train = self.y[self.train_idx]
        self.net = GCN(fan_in, hidden, classes, depth).to(args.device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.loss_sum = torch.zeros((), device=args.device)

    def step(self):
        loss = F.cross_entropy(self.net(self.x, self.adj)[self.train_idx], self.y_train)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=350)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(5):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y06", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
