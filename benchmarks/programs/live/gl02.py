"""Denoising autoencoder on count vectors (cells by genes), trained with AdamW."""
import argparse
import json
import statistics
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

PROGRAM = "gl02"
CHOICES = ["healthy"]
DEFAULT_STEPS = 250
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Cells(Dataset):
    """Counts kept as bytes; a whole batch is gathered at once."""

    def __init__(self, rows, genes):
        gen = torch.Generator().manual_seed(3)
        self.counts = torch.randint(0, 12, (rows, genes), generator=gen, dtype=torch.uint8)
        self.depth = self.counts.float().sum(dim=1).clamp_min(1.0)

    def __len__(self):
        return self.counts.shape[0]

    def __getitem__(self, indices):
        idx = torch.as_tensor(indices)
        return self.counts.index_select(0, idx), self.depth.index_select(0, idx)


class Stack(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x), inplace=True)
        return self.layers[-1](x)


class Autoencoder(nn.Module):
    def __init__(self, genes, hidden, code):
        super().__init__()
        self.encoder = Stack([genes, hidden, hidden, hidden, code])
        self.decoder = Stack([code, hidden, hidden, hidden, genes])

    def forward(self, x):
        return self.decoder(F.relu(self.encoder(x)))


class Progress:
    """Running mean of the loss, and a stop when it runs away."""

    def __init__(self, window):
        self.values = deque(maxlen=window)
        self.best = float("inf")
        self.waiting = None

    def push(self, loss):
        if self.waiting is not None:
            value = self.waiting.item()
            if value != value:
                raise RuntimeError("loss is not a number")
            self.values.append(value)
            mean = sum(self.values) / len(self.values)
            self.best = min(self.best, mean)
        self.waiting = loss.detach()


class Trainer:
    def __init__(self, model, loader, device, lr):
        self.model, self.loader, self.device = model, loader, device
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=device.type == "cuda")
        self.progress = Progress(window=50)
        self.batches = iter(())
        self.epoch = 0
        self.count = 0
        self.warm = 200
        self.base_lr = lr

    def next_batch(self):
        while True:
            batch = next(self.batches, None)
            if batch is not None:
                return batch
            self.epoch += 1
            self.batches = iter(self.loader)

    def set_lr(self):
        scale = min(1.0, (self.count + 1) / self.warm)
        for group in self.opt.param_groups:
            group["lr"] = self.base_lr * scale

    def prepare(self, counts, depth):
        counts = counts.to(self.device, non_blocking=True)
        depth = depth.to(self.device, non_blocking=True)
        target = torch.log1p(counts.float() * (1e3 / depth).unsqueeze(1))
        noisy = target * (torch.rand_like(target) > 0.2)
        return noisy, target

    def train_step(self):
        counts, depth = self.next_batch()
        noisy, target = self.prepare(counts, depth)
        self.set_lr()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            out = self.model(noisy)
        loss = F.mse_loss(out.float(), target)
        self.opt.zero_grad()
        loss.backward()
        norms = [p.grad.norm() for p in self.model.parameters() if p.dim() == 1]
        self.bias_norm = torch.stack(norms).max()
        self.opt.step()
        self.count += 1
        self.progress.push(loss)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    rows, genes, hidden, code, batch = 262144, 1024, 8192, 4096, 32768
    if device.type == "cpu":
        rows, genes, hidden, code, batch = 1024, 64, 128, 32, 64
    data = Cells(rows, genes)
    sampler = BatchSampler(RandomSampler(data), batch_size=batch, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None, num_workers=0, pin_memory=device.type == "cuda")
    with torch.device(device):
        model = Autoencoder(genes, hidden, code)
    trainer = Trainer(model, loader, device, lr=2e-4)
    run_loop(args, device, trainer.train_step)


if __name__ == "__main__":
    main()
