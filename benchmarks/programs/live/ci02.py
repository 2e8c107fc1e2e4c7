"""Sequence classifier with an orthogonal recurrent matrix (long-memory tasks), trained with AdamW."""
import argparse, contextlib, json, statistics, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

HIDDEN, FEATURES, LENGTH, CLASSES, BATCH = 160, 64, 14, 40, 256


class ModReLU(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class OrthoCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(FEATURES, HIDDEN)
        self.rec = orthogonal(nn.Linear(HIDDEN, HIDDEN, bias=False))
        self.act = ModReLU(HIDDEN)

    def forward(self, x, h):
        return self.act(self.inp(x) + self.rec(h))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = nn.Sequential(nn.Linear(FEATURES, 512), nn.GELU(), nn.Linear(512, FEATURES))
        self.cell = OrthoCell()
        self.head = nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 512), nn.GELU(), nn.Linear(512, CLASSES))

    def forward(self, x):
        x = self.frontend(x)
        h = x.new_zeros(x.shape[0], HIDDEN)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


def batches(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(4096, LENGTH, FEATURES, generator=g)
    y = torch.randint(0, CLASSES, (4096,), generator=g)
    while True:
        for rows in torch.randperm(len(x), generator=g).split(BATCH):
            yield x[rows], y[rows]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    torch.manual_seed(0)
    model = Classifier()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    reuse = parametrize.cached if a.variant == "fixed" else contextlib.nullcontext
    running, times, start = torch.zeros(()), [], time.perf_counter()
    data = batches(1)
    for step in range(a.steps):
        t = time.perf_counter()
        x, y = next(data)
        with reuse():
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running.mul_(0.98).add_(loss.detach(), alpha=0.02)
        times.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - start > a.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": running.item()}))


if __name__ == "__main__":
    main()
