"""Training of stacked wide layers on rolling windows, with a metrics file and snapshots."""

import argparse
import json
import os
import tempfile
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["healthy", "slow", "fixed"], default="healthy")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

WINDOW, WIDTH, BATCH = 1024, 1024, 1024


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WINDOW, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)])

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number + 1 < len(self.layers):
                x = F.relu(x)
        return x.squeeze(1)


class Windows:
    """Overlapping windows cut out of one long series, row by row."""

    def __init__(self):
        clock = torch.arange(200_000) * 0.01
        self.series = torch.sin(clock) + 0.5 * torch.sin(3.7 * clock)

    def batch(self):
        starts = torch.randint(len(self.series) - WINDOW - 1, (BATCH,)).tolist()
        rows = [self.series[s : s + WINDOW] for s in starts]
        return torch.stack(rows), self.series[torch.tensor(starts) + WINDOW]


def note(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")


def main():
    torch.manual_seed(0)
    model, windows = Forecaster().to(args.device), Windows()
    opt = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=False)
    recent = deque(maxlen=20)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recent.jsonl")
        begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            x, target = windows.batch()
            loss = F.mse_loss(model(x.to(args.device)), target.to(args.device))
            opt.zero_grad(set_to_none=False)
            loss.backward()
            for p in model.parameters():
                if not torch.isfinite(p.grad).all():
                    raise RuntimeError("gradient overflow")
            opt.step()
            recent.append({"step": step, "loss": loss.item()})
            note(path, recent)
            if step % 20 == 0:
                torch.save(model.layers[-1].state_dict(), os.path.join(folder, "head.pt"))
            print(f"step {step} loss {recent[-1]['loss']:.5f}", flush=True)
            if time.perf_counter() - begin > args.max_seconds:
                break
        took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.6f}")


main()
