"""Denoising autoencoder over tabular rows (swap noise), very wide layers, resident table."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class TabularConfig:
    columns: int = 1024
    rows: int = 400_000
    width: int = 16384
    batch: int = 16384
    swap: float = 0.15
    lr: float = 3e-4
    max_norm: float = 1.0
    patience: int = 50


class RowSampler(IterableDataset):
    """Yields index tensors; the table itself never leaves the device."""

    def __init__(self, cfg: TabularConfig, device):
        self.cfg, self.device = cfg, device

    def __iter__(self):
        while True:
            yield torch.randint(0, self.cfg.rows, (self.cfg.batch,), device=self.device)


class SwapNoise:
    def __init__(self, table, rate):
        self.table, self.rate = table, rate

    def __call__(self, clean):
        donors = torch.randint(0, self.table.shape[0], (clean.shape[0],), device=clean.device)
        mask = torch.rand_like(clean) < self.rate
        return torch.where(mask, self.table.index_select(0, donors), clean)


class WideAutoencoder(nn.Module):
    def __init__(self, cfg: TabularConfig):
        super().__init__()
        self.inp = nn.Linear(cfg.columns, cfg.width)
        self.hidden = nn.ModuleList(nn.Linear(cfg.width, cfg.width) for _ in range(3))
        self.out = nn.Linear(cfg.width, cfg.columns)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


class Guard:
    """Refuses updates with a non-finite gradient and stops after too many in a row."""

    def __init__(self, patience):
        self.patience, self.bad = patience, 0

    def accept(self, norm):
        value = norm.item()
        if value == value and value != float("inf"):
            self.bad = 0
            return True
        self.bad += 1
        if self.bad > self.patience:
            raise RuntimeError("training diverged")
        return False


class Trainer:
    def __init__(self, cfg: TabularConfig, device):
        self.cfg, self.device = cfg, device
        self.table = torch.randn(cfg.rows, cfg.columns, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.noise = SwapNoise(self.table, cfg.swap)
        self.loader = iter(DataLoader(RowSampler(cfg, device), batch_size=None, num_workers=0))
        with torch.device(device):
            self.model = WideAutoencoder(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), fused=device.type == "cuda")
        self.guard = Guard(cfg.patience)
        self.log = []

    def step(self):
        clean = self.table.index_select(0, next(self.loader))
        noisy = self.noise(clean)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            recon = self.model(noisy)
        loss = F.mse_loss(recon.float(), clean.float())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        if self.guard.accept(norm):
            self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.log.append({"loss": loss.item(), "norm": float(norm)})


def capture(trainer, device, path):
    A = torch.profiler.ProfilerActivity
    prof = torch.profiler.profile(activities=[A.CPU, A.CUDA] if device.type == "cuda" else [A.CPU], record_shapes=True, with_stack=True,
                                  with_modules=True, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                  on_trace_ready=lambda p: p.export_chrome_trace(path))
    prof.start()
    for _ in range(6):
        trainer.step()
        prof.step()
    prof.stop()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=75)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = TabularConfig() if device.type == "cuda" else TabularConfig(columns=16, rows=500, width=64, batch=32)
    trainer = Trainer(cfg, device)
    for _ in range(4):
        trainer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    edges = [begin]
    while len(edges) <= args.steps and edges[-1] - begin < args.max_seconds:
        trainer.step()
        edges.append(time.perf_counter())
    if device.type == "cuda":
        torch.cuda.synchronize()
    total, n = time.perf_counter() - begin, len(edges) - 1
    print(json.dumps({"program": "v11", "variant": args.variant, "steps": n, "step_ms_mean": total / n * 1e3,
                      "step_ms_median": statistics.median(b - a for a, b in zip(edges, edges[1:])) * 1e3}), flush=True)
    if args.trace:
        capture(trainer, device, args.trace)


if __name__ == "__main__":
    main()
