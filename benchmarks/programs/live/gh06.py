"""Masked pre-training of a wide transformer on reanalysis patches."""
import argparse
import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gh06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 220
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
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

class Reanalysis(Dataset):
    """Synthesises correlated fields, standardises them and cuts them into patches."""

    def __init__(self, count, grid, patch):
        self.count, self.grid, self.patch = count, grid, patch
        kx = np.fft.fftfreq(grid[0])[:, None]
        ky = np.fft.rfftfreq(grid[1])[None]
        self.filter = 1.0 / (0.02 + np.sqrt(kx ** 2 + ky ** 2)) ** 1.5

    def __len__(self):
        return self.count

    def field(self, rng):
        noise = np.fft.rfft2(rng.standard_normal(self.grid))
        value = np.fft.irfft2(noise * self.filter, s=self.grid)
        return (value - value.mean()) / value.std()

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        value = self.field(rng)
        low, high = np.quantile(value, [0.001, 0.999])
        value = np.clip(value, low, high)
        h, w = self.grid
        p = self.patch
        cut = value.reshape(h // p, p, w // p, p).transpose(0, 2, 1, 3).reshape(-1, p * p)
        hidden = rng.random(len(cut)) < 0.5
        return torch.from_numpy(cut.astype(np.float16)), torch.from_numpy(hidden)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class FieldModel(nn.Module):
    def __init__(self, patch, tokens, width, heads, depth):
        super().__init__()
        self.read = nn.Linear(patch * patch, width)
        self.place = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.blank = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.write = nn.Linear(width, patch * patch)

    def forward(self, patches, hidden):
        x = torch.where(hidden[..., None], self.blank, self.read(patches)) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.write(self.norm(x))


class Journal:
    def __init__(self):
        self.loss, self.norm, self.best = [], [], math.inf

    def add(self, loss, norm):
        self.loss.append(loss)
        self.norm.append(norm)
        self.best = min(self.best, loss)
        if len(self.loss) % 50 == 0:
            recent = self.loss[-50:]
            print(json.dumps({"step": len(self.loss), "loss": round(sum(recent) / 50, 5),
                              "best": round(self.best, 5), "norm": round(norm, 4)}), flush=True)


class PreTraining:
    def __init__(self, model, loader, device):
        self.model, self.loader, self.device = model, loader, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, betas=(0.9, 0.95),
                                           fused=device.type == "cuda")
        self.journal = Journal()
        self.batches = self.stream()

    def stream(self):
        while True:
            for patches, hidden in self.loader:
                yield (patches.to(self.device, torch.bfloat16, non_blocking=True),
                       hidden.to(self.device, non_blocking=True))

    def step(self):
        patches, hidden = next(self.batches)
        predicted = self.model(patches, hidden)
        error = (predicted.float() - patches.float()).square().mean(-1)
        loss = (error * hidden).sum() / hidden.sum()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.journal.add(loss.item(), norm.item())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    gpu = device.type == "cuda"
    if gpu:
        grid, patch, batch, width, heads, depth, workers = (256, 512), 8, 4, 8192, 64, 2, 6
    else:
        grid, patch, batch, width, heads, depth, workers = (32, 64), 8, 2, 64, 4, 1, 1
    tokens = grid[0] * grid[1] // patch ** 2
    loader = DataLoader(Reanalysis(20_000, grid, patch), batch_size=batch, shuffle=True, drop_last=True,
                        num_workers=workers, persistent_workers=True, pin_memory=gpu)
    with device:
        model = FieldModel(patch, tokens, width, heads, depth).to(torch.bfloat16)
    run_loop(args, device, PreTraining(model, loader, device).step)


if __name__ == "__main__":
    main()
