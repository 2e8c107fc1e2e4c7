"""Property regression on small molecule-like graphs with a message passing network."""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MoleculeSet(Dataset):
    """Random connected graphs, each derived from its index."""

    def __init__(self, size: int, node_dim: int = 16, edge_dim: int = 4):
        self.size, self.node_dim, self.edge_dim = size, node_dim, edge_dim
        gen = torch.Generator().manual_seed(7)
        self.templates = [self._template(gen) for _ in range(512)]

    def _template(self, gen):
        n = int(torch.randint(10, 28, (1,), generator=gen))
        parent = (torch.rand(n - 1, generator=gen) * torch.arange(1, n)).long()
        child = torch.arange(1, n)
        extra = torch.randint(0, n, (2, n // 3), generator=gen)
        src = torch.cat([parent, child, extra[0], extra[1]])
        dst = torch.cat([child, parent, extra[1], extra[0]])
        x = torch.randn(n, self.node_dim, generator=gen)
        e = torch.randn(src.numel(), self.edge_dim, generator=gen)
        return {"x": x, "edge_index": torch.stack([src, dst]), "edge_attr": e}

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        item = self.templates[i % len(self.templates)]
        x = item["x"] * (1 + 0.01 * (i % 37))
        target = x.tanh().sum() / 10 + item["edge_attr"][:, 0].mean()
        return {"x": x, "edge_index": item["edge_index"].clone(),
                "edge_attr": item["edge_attr"].clone(), "y": target.view(1)}


def merge(graphs):
    """One big disconnected graph out of many."""
    offset, edges, owner = 0, [], []
    for g_id, g in enumerate(graphs):
        n = g["x"].shape[0]
        edges.append(g["edge_index"] + offset)
        owner.append(torch.full((n,), g_id, dtype=torch.long))
        offset += n
    return {"x": torch.cat([g["x"] for g in graphs]), "edge_index": torch.cat(edges, 1),
            "edge_attr": torch.cat([g["edge_attr"] for g in graphs]),
            "y": torch.cat([g["y"] for g in graphs]), "owner": torch.cat(owner), "count": len(graphs)}


def as_list(graphs):
    return graphs


class EdgeLayer(nn.Module):
    def __init__(self, dim: int, edge_dim: int):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * dim + edge_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.upd = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edge_index, edge_attr):
        src, dst = edge_index
        m = self.msg(torch.cat([h.index_select(0, src), h.index_select(0, dst), edge_attr], -1))
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return self.norm(h + F.silu(self.upd(torch.cat([h, agg], -1))))


class GraphNet(nn.Module):
    def __init__(self, node_dim=16, edge_dim=4, dim=48, depth=2):
        super().__init__()
        self.embed = nn.Linear(node_dim, dim)
        self.layers = nn.ModuleList(EdgeLayer(dim, edge_dim) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, batch):
        h = self.embed(batch["x"])
        for layer in self.layers:
            h = layer(h, batch["edge_index"], batch["edge_attr"])
        pooled = h.new_zeros(batch["count"], h.shape[1]).index_add(0, batch["owner"], h)
        return self.head(pooled).squeeze(-1)


def make_loader(early: bool, size: int, batch_size: int):
    return DataLoader(MoleculeSet(size), batch_size=batch_size, shuffle=True, drop_last=True, num_workers=1,
                      prefetch_factor=2, persistent_workers=True, collate_fn=merge if early else as_list)


def epochs(loader):
    while True:
        yield from loader


def run(early: bool, steps: int, max_seconds: float):
    torch.manual_seed(0)
    loader = make_loader(early, size=64 * 4000, batch_size=64)
    model = GraphNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    times, begin, losses = [], time.perf_counter(), []
    last = time.perf_counter()
    for step, batch in enumerate(epochs(loader)):
        if not early:
            batch = merge(batch)
        loss = F.huber_loss(model(batch), batch["y"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        losses.append(loss.detach())
        now = time.perf_counter()
        times.append(1e3 * (now - last))
        last = now
        if step + 1 >= steps or now - begin > max_seconds:
            break
    return times, torch.stack(losses[-50:]).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    times, loss = run(args.variant != "slow", args.steps, args.max_seconds)
    kept = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3), "loss": round(loss, 4)}))


if __name__ == "__main__":
    main()
