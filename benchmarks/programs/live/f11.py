"""Node classification on a citation-like graph: smoothed features and a linear head."""
import logging
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync

log = logging.getLogger("graph")


def random_edges(n, m, device):
    g = torch.Generator(device=device).manual_seed(10)
    src = torch.randint(0, n, (m,), generator=g, device=device)
    hub = torch.rand(m, generator=g, device=device).pow(2)
    dst = (hub * n).long().clamp_(max=n - 1)
    loops = torch.arange(n, device=device)
    return torch.stack([torch.cat([src, dst, loops]), torch.cat([dst, src, loops])])


class Graph:
    def __init__(self, n, edges, tidy):
        value = torch.ones(edges.shape[1], device=edges.device)
        degree = torch.zeros(n, device=edges.device).index_add_(0, edges[0], value)
        inv = degree.clamp(min=1).rsqrt()
        weight = inv[edges[0]] * inv[edges[1]]
        self.n = n
        self.adj = torch.sparse_coo_tensor(edges, weight, (n, n))
        if tidy:
            self.adj = self.adj.coalesce()

    def smooth(self, x, hops, restart):
        h = x
        for _ in range(hops):
            h = (1 - restart) * torch.sparse.mm(self.adj, h) + restart * x
        return h


class Head(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, h):
        return self.net(h)


def train_step(graph, head, opt, features, labels, picks, cfg):
    with torch.no_grad():
        noisy = F.dropout(features, cfg.drop)
        h = graph.smooth(noisy, cfg.hops, cfg.restart)
    logits = head(h[picks])
    loss = F.cross_entropy(logits, labels[picks])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss


def main():
    logging.basicConfig(level=logging.INFO)
    args = parse(["slow", "fixed"])
    cfg = SimpleNamespace(nodes=100_000, edges=2_000_000, dim=32, classes=40, hops=10, restart=0.1, drop=0.3,
                          picks=8192)
    if args.tiny:
        cfg.nodes, cfg.edges, cfg.dim, cfg.picks = 200, 600, 8, 32
    torch.manual_seed(10)
    device = torch.device(args.device)
    graph = Graph(cfg.nodes, random_edges(cfg.nodes, cfg.edges, device), tidy=args.variant == "fixed")
    features = torch.randn(cfg.nodes, cfg.dim, device=device)
    labels = torch.randint(0, cfg.classes, (cfg.nodes,), device=device)
    head = Head(cfg.dim, cfg.classes).to(device)
    opt = torch.optim.Adam(head.parameters(), lr=1e-2)
    log.info("graph with %d nodes", graph.n)

    def one():
        picks = torch.randint(0, cfg.nodes, (cfg.picks,), device=device)
        return train_step(graph, head, opt, features, labels, picks, cfg)

    for _ in range(3):
        one()
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        loss = one()
        if (i + 1) % 100 == 0:
            log.info("step %d loss %.3f", i + 1, loss.item())
    meter.report()


if __name__ == "__main__":
    main()
