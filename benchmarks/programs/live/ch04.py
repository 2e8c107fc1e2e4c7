"""Sequence classifier: convolutional front end, recurrent core with an orthogonal transition."""
import argparse
import contextlib
import json
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize


class Core(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.inward = nn.Linear(inputs, hidden)
        self.turn = parametrizations.orthogonal(nn.Linear(hidden, hidden, bias=False), orthogonal_map="matrix_exp")
        self.shift = nn.Parameter(torch.zeros(hidden))
        self.hidden = hidden

    def forward(self, x):
        drive = self.inward(x)
        h = drive.new_zeros(x.shape[0], self.hidden)
        out = []
        for t in range(x.shape[1]):
            z = drive[:, t] + self.turn(h)
            h = torch.sign(z) * F.relu(z.abs() + self.shift)
            out.append(h)
        return torch.stack(out, 1)


class Classifier(nn.Module):
    def __init__(self, channels=6, width=96, hidden=128, classes=10):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(channels, width, 7, 2, 3), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU(),
            nn.Conv1d(width, width, 5, 4, 2), nn.GELU(),
        )
        self.core = Core(width, hidden)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, classes))

    def forward(self, x):
        x = self.front(x).transpose(1, 2)
        return self.head(self.core(x).mean(1))


def batches(size, length, channels=6, classes=10):
    g = torch.Generator().manual_seed(1)
    axis = torch.linspace(0, 6.28, length)
    while True:
        y = torch.randint(0, classes, (size,), generator=g)
        phase = torch.rand(size, channels, 1, generator=g)
        x = torch.sin(axis * (y[:, None, None] + 1) + 6.28 * phase)
        yield x + 0.3 * torch.randn(size, channels, length, generator=g), y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)
    times, start = [], time.perf_counter()
    for x, y in batches(96, 384):
        t = time.perf_counter()
        with parametrize.cached() if args.variant == "fixed" else contextlib.nullcontext():
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) % 50 == 0:
            print(f"step {len(times)} loss {loss.item():.3f}", flush=True)
        if len(times) >= args.steps or time.perf_counter() - start > args.max_seconds:
            break
    kept = sorted(times[3:])
    print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                      "steps": len(times)}))


if __name__ == "__main__":
    main()
