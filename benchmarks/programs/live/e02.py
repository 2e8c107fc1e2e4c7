"""Relational graph network on a synthetic knowledge graph (entity classification)."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_e import StepTimes, base_parser

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
LOG = logging.getLogger("rgcn")

FULL = dict(nodes=60_000, edges=160_000, hidden=64, layers=2, classes=40, relations=12)
SMALL = dict(nodes=200, edges=600, hidden=64, layers=2, classes=5, relations=4)


class Graph:
    """COO graph; relation frequencies follow a long-tailed law as in the real data."""

    def __init__(self, nodes, edges, relations, device, **_):
        g = torch.Generator().manual_seed(1)
        self.n = nodes
        self.src = torch.randint(nodes, (edges,), generator=g).to(device)
        self.dst = torch.randint(nodes, (edges,), generator=g).to(device)
        p = 0.5 ** torch.arange(1, relations + 1).float()
        self.etype = torch.multinomial(p, edges, replacement=True, generator=g).to(device)
        deg = torch.zeros(nodes, device=device).index_add_(0, self.dst, torch.ones(edges, device=device))
        self.norm = (1.0 / deg.clamp(min=1.0)).unsqueeze(1)


class RelationTable(nn.Module):
    def __init__(self, relations, dim, lookup):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(relations, dim) * 0.1 + 1.0)
        self.lookup = lookup

    def forward(self, etype):
        return self.lookup(self.weight, etype)


LOOKUPS = {
    "slow": lambda w, idx: w[idx],
    "fixed": lambda w, idx: w.index_select(0, idx),
}


class RelConv(nn.Module):
    def __init__(self, dim, relations, lookup):
        super().__init__()
        self.rel = RelationTable(relations, dim, lookup)
        self.msg = nn.Linear(dim, dim, bias=False)
        self.self_loop = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, g):
        m = self.msg(x).index_select(0, g.src) * self.rel(g.etype)
        agg = torch.zeros_like(x).index_add_(0, g.dst, m) * g.norm
        return self.norm(F.relu(agg + self.self_loop(x)) + x)


class Model(nn.Module):
    def __init__(self, cfg, lookup):
        super().__init__()
        self.feat = nn.Parameter(torch.randn(cfg["nodes"], cfg["hidden"]) * 0.1)
        self.convs = nn.ModuleList(
            RelConv(cfg["hidden"], cfg["relations"], lookup) for _ in range(cfg["layers"]))
        self.out = nn.Linear(cfg["hidden"], cfg["classes"])

    def forward(self, g):
        x = self.feat
        for conv in self.convs:
            x = conv(x, g)
        return self.out(x)


class Trainer:
    def __init__(self, args: argparse.Namespace):
        self.args, self.device = args, torch.device(args.device)
        self.cfg = SMALL if args.tiny else FULL
        torch.manual_seed(3)
        torch.set_float32_matmul_precision("high")
        self.graph = Graph(device=self.device, **self.cfg)
        self.model = Model(self.cfg, LOOKUPS[args.variant]).to(self.device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.labels = torch.randint(self.cfg["classes"], (self.cfg["nodes"],), device=self.device)
        self.train_idx = torch.randperm(self.cfg["nodes"], device=self.device)[: self.cfg["nodes"] // 4]

    def step(self):
        self.model.train()
        logits = self.model(self.graph)
        loss = F.cross_entropy(logits.index_select(0, self.train_idx),
                               self.labels.index_select(0, self.train_idx))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    def fit(self):
        for _ in range(1 if self.args.tiny else 5):
            self.step()
        clock = StepTimes(self.device)
        clock.begin()
        for epoch in range(self.args.steps):
            loss = self.step()
            if epoch % 40 == 0:
                LOG.info("epoch %d loss %.4f", epoch, loss.item())
            clock.tick()
        clock.finish()


if __name__ == "__main__":
    Trainer(base_parser().parse_args()).fit()
