"""Trains a detector head; each image brings its own boxes, labels, areas and flags.

TRUTH: the targets go to the device one small tensor at a time, `[{k: v.to(device) ...} for t in targets]` in train_step: 160
images x 4 fields = 640 tiny pageable host-to-device copies a step, each with a stream synchronisation, while the device idles. Fix: concatenate
each field on the host and send four tensors.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main

FIELDS = ("boxes", "labels", "area", "crowd")


def make_targets(n, g):
    out = []
    for k in range(n):
        m = 3 + k % 9
        out.append({
            "boxes": torch.rand(m, 4, generator=g),
            "labels": torch.randint(0, 80, (m,), generator=g),
            "area": torch.rand(m, generator=g),
            "crowd": torch.zeros(m),
        })
    return out


def build(ctx):
    torch.set_float32_matmul_precision("high")
    n, feat, wide = ctx.pick(160, 8), ctx.pick(2048, 32), ctx.pick(4096, 32)
    net = nn.Sequential(nn.Linear(feat, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 85)).to(ctx.device)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=True)
    anchors = ctx.pick(64, 4)
    images = torch.randn(n * anchors, feat, device=ctx.device)
    g = torch.Generator().manual_seed(3)
    sets = [make_targets(n, g) for _ in range(4)]
    counts = torch.tensor([len(t["labels"]) for t in sets[0]])
    rows = torch.cat([torch.arange(int(c)) % anchors + k * anchors for k, c in enumerate(counts)]).to(ctx.device)

    def gathered(targets):
        if ctx.slow:
            moved = [{k: v.to(ctx.device) for k, v in t.items()} for t in targets]
            return {k: torch.cat([t[k] for t in moved]) for k in FIELDS}
        return {k: torch.cat([t[k] for t in targets]).to(ctx.device) for k in FIELDS}

    def train_step(i):
        t = gathered(sets[i % 4])
        y = net(images).index_select(0, rows)
        keep = (1 - t["crowd"]) * (0.5 + t["area"])
        loss = (F.l1_loss(y[:, :4].sigmoid(), t["boxes"], reduction="none").sum(1) * keep).mean()
        loss = loss + (F.cross_entropy(y[:, 5:], t["labels"], reduction="none") * keep).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 8), warmup=6)
