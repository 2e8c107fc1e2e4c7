"""Link prediction on a co-purchase graph: GraphSAGE encoder, filtered negative samples."""
import argparse
import json
import statistics
import time

import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


warnings.filterwarnings("ignore", message="Sparse")


class PurchaseGraph:
    def __init__(self, nodes, edges, dim, seed=0):
        rng = np.random.default_rng(seed)
        src = rng.integers(0, nodes, edges)
        dst = (src + rng.geometric(0.002, edges)) % nodes
        keep = src != dst
        self.nodes = nodes
        self.src, self.dst = src[keep], dst[keep]
        self.x = torch.from_numpy(rng.standard_normal((nodes, dim)).astype(np.float32))
        both_src = torch.from_numpy(np.concatenate([self.src, self.dst]))
        both_dst = torch.from_numpy(np.concatenate([self.dst, self.src]))
        deg = torch.bincount(both_dst, minlength=nodes).clamp_min(1).float()
        adj = torch.sparse_coo_tensor(torch.stack([both_dst, both_src]), 1 / deg[both_dst], (nodes, nodes))
        self.adj = adj.coalesce().to_sparse_csr()


class SampleBank:
    """Positive edges and corrupted ones that are not edges of the graph."""

    def __init__(self, graph, variant, seed=1):
        self.graph, self.rng = graph, np.random.default_rng(seed)
        self.keys = np.concatenate([graph.src * graph.nodes + graph.dst, graph.dst * graph.nodes + graph.src])
        self.variant = variant
        if variant != "slow":
            self.keys = np.unique(self.keys)

    def positives(self, n):
        e = self.rng.integers(0, len(self.graph.src), n)
        return self.graph.src[e], self.graph.dst[e]

    def known(self, keys):
        if self.variant != "slow":
            at = np.searchsorted(self.keys, keys)
            return self.keys[np.minimum(at, len(self.keys) - 1)] == keys
        return np.isin(keys, self.keys)

    def negatives(self, src):
        dst = self.rng.integers(0, self.graph.nodes, len(src))
        for _ in range(3):
            bad = self.known(src * self.graph.nodes + dst) | (src == dst)
            if not bad.any():
                break
            dst[bad] = self.rng.integers(0, self.graph.nodes, int(bad.sum()))
        return dst

    def batch(self, n):
        src, dst = self.positives(n)
        return (torch.from_numpy(a) for a in (src, dst, self.negatives(src)))


class SageLayer(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own, self.nbr = nn.Linear(cin, cout), nn.Linear(cin, cout, bias=False)

    def forward(self, x, adj, adj_t):
        return self.own(x) + Aggregate.apply(self.nbr(x), adj, adj_t)


class Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, adj, adj_t):
        ctx.adj_t = adj_t
        return adj @ h

    @staticmethod
    def backward(ctx, grad):
        return ctx.adj_t @ grad.contiguous(), None, None


class Encoder(nn.Module):
    def __init__(self, dim, hidden, out):
        super().__init__()
        self.a, self.b = SageLayer(dim, hidden), SageLayer(hidden, out)

    def forward(self, x, adj, adj_t):
        h = F.dropout(F.relu(self.a(x, adj, adj_t)), 0.2, self.training)
        return F.normalize(self.b(h, adj, adj_t), dim=1)


def hits_at(pos, neg, k=50):
    cut = neg.topk(k).values[-1]
    return (pos > cut).float().mean()


def train(args):
    graph = PurchaseGraph(args.nodes, args.edges, 64)
    adj_t = graph.adj.to_sparse_coo().t().coalesce().to_sparse_csr()
    bank = SampleBank(graph, args.variant)
    model = Encoder(64, 96, 64)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    times, begin = [], time.perf_counter()
    last, hits = begin, 0.0
    for step in range(args.steps):
        src, dst, neg = bank.batch(args.batch)
        z = model(graph.x, graph.adj, adj_t)
        zs = z[src]
        pos, bad = (zs * z[dst]).sum(1) * 5, (zs * z[neg]).sum(1) * 5
        loss = F.softplus(-pos).mean() + F.softplus(bad).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        hits = 0.95 * hits + 0.05 * hits_at(pos.detach(), bad.detach()).item()
        now = time.perf_counter()
        times.append((now - last) * 1e3)
        last = now
        if now - begin > args.max_seconds:
            break
    return times, loss.item(), hits


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--nodes", type=int, default=20000)
    p.add_argument("--edges", type=int, default=120000)
    p.add_argument("--batch", type=int, default=4096)
    args = p.parse_args()
    torch.manual_seed(0)
    times, loss, hits = train(args)
    t = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "loss": round(loss, 4), "hits": round(hits, 4)}))


if __name__ == "__main__":
    main()
