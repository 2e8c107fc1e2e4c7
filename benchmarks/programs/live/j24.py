"""Continuing a regression run whose metrics are kept in one JSON file."""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

EARLIER, FEATURES, BATCH, WIDTH = 12_000, 64, 256, 128


def earlier_run():
    rng = np.random.default_rng(0)
    rows = np.abs(rng.normal(1, 0.2, (EARLIER, 3))).round(6).tolist()
    return [{"step": n, "loss": a, "norm": b, "rate": c} for n, (a, b, c) in enumerate(rows)]


class MetricsFile:
    """All metrics of the run, readable by the dashboard at any time."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "metrics.json")
        self.rows = earlier_run()
        self.open()

    def open(self):
        self.write()

    def write(self):
        with open(self.path + ".new", "w") as f:
            json.dump({"run": "resumed", "rows": self.rows}, f)
        os.replace(self.path + ".new", self.path)

    def add(self, row):
        self.rows.append(row)
        self.write()

    def close(self):
        pass


class MetricLines(MetricsFile):
    def open(self):
        self.file = open(self.path, "w")
        self.file.writelines(json.dumps(row) + "\n" for row in self.rows)

    def add(self, row):
        self.rows.append(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1)
    ).to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        metrics = (MetricsFile if args.variant == "slow" else MetricLines)(folder)
        begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            x = torch.randn(BATCH, FEATURES, device=args.device)
            target = torch.sin(x[:, :8].sum(1, keepdim=True))
            loss = F.mse_loss(model(x), target)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            metrics.add({"step": EARLIER + step, "loss": loss.item(), "norm": norm.item(), "rate": 1e-3})
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if time.perf_counter() - begin > args.max_seconds:
                break
        took = time.perf_counter() - begin
        metrics.close()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


main()
