"""Click prediction with hashed categorical features (CPU)."""

import argparse
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

BUCKETS, DIM, FIELDS, BATCH = 300_000, 32, 14, 512


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fields = nn.EmbeddingBag(BUCKETS, DIM, mode="mean", sparse=args.variant == "fixed")
        self.wide = nn.Linear(8, DIM)
        self.deep = nn.Sequential(
            nn.Linear(2 * DIM, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, hashed, dense):
        both = torch.cat([self.fields(hashed), self.wide(dense)], 1)
        return self.deep(both).squeeze(1)


class ClickLog:
    """Synthetic impressions: skewed field values hashed into one table."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.salt = np.arange(FIELDS, dtype=np.int64) * 7_919_017

    def read(self):
        raw = self.rng.zipf(1.2, (BATCH, FIELDS)) % 1_000_003
        hashed = (raw * 2_654_435_761 + self.salt) % BUCKETS
        dense = self.rng.random((BATCH, 8), dtype=np.float32)
        clicked = (dense[:, 0] + 0.3 * (raw[:, 0] < 3) > 0.8).astype(np.float32)
        return torch.from_numpy(hashed), torch.from_numpy(dense), torch.from_numpy(clicked)


class RunningAccuracy:
    def __init__(self):
        self.right = self.total = 0

    def add(self, logits, clicked):
        self.right += int(((logits > 0) == (clicked > 0.5)).sum())
        self.total += len(clicked)

    def value(self):
        return self.right / max(1, self.total)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several jobs share this machine
    model = ClickModel()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.03)
    log = ClickLog(17)
    accuracy = RunningAccuracy()
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        hashed, dense, clicked = log.read()
        logits = model(hashed, dense)
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        opt.zero_grad()
        loss.backward()
        opt.step()
        accuracy.add(logits.detach(), clicked)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} acc {accuracy.value():.3f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
