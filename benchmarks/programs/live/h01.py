"""Node classification on a large synthetic citation graph with a three layer GCN."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Graph:
    """Undirected graph held as an edge list, with symmetric normalisation D^-1/2 (A + I) D^-1/2."""

    def __init__(self, num_nodes, num_edges, device, memo):
        gen = torch.Generator(device="cpu").manual_seed(7)
        # preferential attachment flavour: squares of uniforms crowd the low ids
        src = (torch.rand(num_edges, generator=gen) ** 2 * num_nodes).long()
        dst = torch.randint(0, num_nodes, (num_edges,), generator=gen)
        loops = torch.arange(num_nodes)
        self.num_nodes = num_nodes
        self.edge_index = torch.stack(
            [torch.cat([src, dst, loops]), torch.cat([dst, src, loops])]
        ).to(device)
        self.memo = memo
        self._adj = None

    def _build(self):
        row, col = self.edge_index
        deg = torch.zeros(self.num_nodes, device=row.device)
        deg.scatter_add_(0, row, torch.ones_like(row, dtype=deg.dtype))
        inv = deg.clamp(min=1).rsqrt()
        weight = inv[row] * inv[col]
        adj = torch.sparse_coo_tensor(self.edge_index, weight, (self.num_nodes, self.num_nodes))
        return adj.coalesce().to_sparse_csr()

    def adjacency(self):
        if not self.memo:
            return self._build()
        if self._adj is None:
            self._adj = self._build()
        return self._adj


class Propagate(torch.autograd.Function):
    """Sparse-dense product; the matrix is symmetric so it serves for the backward pass too."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adj, grad.contiguous())


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)

    def forward(self, x, graph):
        return Propagate.apply(graph.adjacency(), self.lin(x))


class GCN(nn.Module):
    def __init__(self, d_in, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList(
            [GraphConv(d_in, hidden), GraphConv(hidden, hidden), GraphConv(hidden, classes)]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])

    def forward(self, x, graph):
        for conv, norm in zip(self.convs[:-1], self.norms):
            x = F.relu(norm(conv(x, graph)))
        return self.convs[-1](x, graph)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=650)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()

    big = args.device == "cuda"
    nodes, edges, dim, hidden, classes = (
        (600_000, 8_000_000, 128, 128, 64) if big else (2_000, 12_000, 32, 32, 8)
    )
    torch.manual_seed(0)
    if big:
        torch.set_float32_matmul_precision("high")
    graph = Graph(nodes, edges, args.device, memo=args.variant == "fixed")
    feats = torch.randn(nodes, dim).to(args.device)
    labels = torch.randint(0, classes, (nodes,)).to(args.device)
    train_ids = torch.randperm(nodes)[: nodes // 2].to(args.device)

    model = GCN(dim, hidden, classes).to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    start, step = time.perf_counter(), 0
    for step in range(1, args.steps + 1):
        logits = model(feats, graph)
        loss = F.cross_entropy(logits[train_ids], labels[train_ids])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"epoch {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - start > args.max_seconds:
            break
    final = loss.item()
    took = time.perf_counter() - start
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={final:.5f}")


if __name__ == "__main__":
    main()
