"""Contrastive learning of spectra against a queue of earlier embeddings."""

import argparse
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=245)
parser.add_argument("--max-seconds", type=float, default=25)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
QUEUE, WIDTH, BATCH, BINS = (131_072, 512, 512, 1024) if GPU else (1024, 16, 16, 32)
HIDDEN = 1536 if GPU else 32
RECENT, EVERY, WARM = 256, 20, 5


def sync():
    if GPU:
        torch.cuda.synchronize()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(BINS, HIDDEN), nn.GELU(), nn.LayerNorm(HIDDEN),
            nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.LayerNorm(HIDDEN),
            nn.Linear(HIDDEN, WIDTH),
        )

    def forward(self, spectra):
        return F.normalize(self.body(spectra), dim=-1)


class Queue:
    """Ring of embeddings that serve as negatives."""

    def __init__(self):
        self.rows = F.normalize(torch.randn(QUEUE, WIDTH, device=args.device), dim=-1)
        self.place = 0

    def put(self, rows):
        self.rows[self.place : self.place + BATCH] = rows
        self.place = (self.place + BATCH) % QUEUE

    def recent(self):
        last = (self.place - RECENT) % QUEUE
        rows = self.rows[last : last + RECENT]
        return rows if args.variant == "slow" else rows.clone()


class Spectra:
    def __init__(self):
        self.basis = torch.randn(64, BINS, device=args.device)

    def pair(self):
        mix = torch.randn(BATCH, 64, device=args.device) @ self.basis
        return mix + 0.2 * torch.randn_like(mix), mix + 0.2 * torch.randn_like(mix)


class Snapshots:
    """The newest embeddings for the dashboard, with the settings of the run."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, step, queue, loss):
        path = os.path.join(self.folder, f"recent_{step // EVERY % 2}.pt")
        torch.save({"step": step, "loss": float(loss), "recent": queue.recent()}, path)


class Run:
    def __init__(self):
        self.encoder = Encoder().to(args.device)
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=1e-4, fused=GPU)
        self.queue, self.spectra = Queue(), Spectra()

    def step(self):
        first, second = self.spectra.pair()
        query = self.encoder(first)
        with torch.no_grad():
            key = self.encoder(second)
        near = (query * key).sum(-1, keepdim=True)
        far = query @ self.queue.rows.T
        scores = torch.cat([near, far], dim=1) / 0.1
        loss = F.cross_entropy(scores, torch.zeros(BATCH, dtype=torch.long, device=args.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.queue.put(key)
        return loss.detach()


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    run = Run()
    with tempfile.TemporaryDirectory() as folder:
        snapshots = Snapshots(folder)
        begin = start = time.perf_counter()
        for step in range(1, args.steps + 1):
            loss = run.step()
            if step % EVERY == 0:
                snapshots.write(step, run.queue, loss)
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == WARM:
                sync()
                start = time.perf_counter()
            if step > WARM and time.perf_counter() - begin > args.max_seconds:
                break
        sync()
        took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
