"""Two-view contrastive training on synthetic audio: numpy augmentation in worker processes, wide frame network."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gb11"
CHOICES = ["healthy"]
DEFAULT_STEPS = 220
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
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


class TwoViewClips(Dataset):
    def __init__(self, length, frames, bands, window=512, hop=160):
        self.length, self.frames, self.bands = length, frames, bands
        self.window, self.hop = window, hop
        self.taper = np.hanning(window).astype(np.float32)
        edges = np.linspace(0, window // 2, bands + 1).astype(int)
        self.edges = edges[:-1]

    def __len__(self):
        return self.length

    def waveform(self, rng):
        samples = self.hop * (self.frames - 1) + self.window
        t = np.arange(samples, dtype=np.float32) / 16000.0
        wave = np.zeros(samples, dtype=np.float32)
        for _ in range(4):
            pitch, depth = rng.uniform(80, 3000), rng.uniform(0, 30)
            wave += np.sin(2 * np.pi * pitch * t + depth * np.sin(2 * np.pi * 3 * t)).astype(np.float32)
        return wave

    def spectrogram(self, wave):
        views = np.lib.stride_tricks.sliding_window_view(wave, self.window)[:: self.hop]
        power = np.abs(np.fft.rfft(views * self.taper, axis=-1)) ** 2
        banded = np.add.reduceat(power, self.edges, axis=-1)[:, : self.bands]
        return np.log1p(banded).astype(np.float32)

    def augment(self, wave, rng):
        noisy = wave * rng.uniform(0.5, 1.5) + rng.normal(0, 0.05, wave.shape).astype(np.float32)
        spec = self.spectrogram(np.roll(noisy, int(rng.integers(0, 1600))))
        start = int(rng.integers(0, self.frames - self.frames // 8))
        spec[start:start + self.frames // 8] = spec.mean()
        band = int(rng.integers(0, self.bands - self.bands // 8))
        spec[:, band:band + self.bands // 8] = spec.mean()
        return ((spec - spec.mean()) / (spec.std() + 1e-5)).astype(np.float16)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        wave = self.waveform(rng)
        return torch.from_numpy(np.stack([self.augment(wave, rng), self.augment(wave, rng)]))


class FrameLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class FrameNetwork(nn.Module):
    def __init__(self, bands, dim, depth, out):
        super().__init__()
        self.inp = nn.Linear(bands, dim)
        self.layers = nn.ModuleList(FrameLayer(dim) for _ in range(depth))
        self.project = nn.Linear(dim, out)

    def forward(self, spec):
        x = self.inp(spec)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.project(x.mean(dim=1)).float(), dim=-1)


def two_view_loss(a, b, temperature=0.1):
    logits = a @ b.mT / temperature
    labels = torch.arange(a.shape[0], device=a.device)
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.mT, labels)), logits


class RetrievalMeter:
    def __init__(self):
        self.hits, self.total = 0, 0

    def update(self, logits):
        best = logits.detach().argmax(dim=1).tolist()
        self.hits += sum(int(i == j) for i, j in enumerate(best))
        self.total += len(best)


def epochs_of(loader):
    epoch = 0
    while True:
        for batch in loader:
            yield epoch, batch
        epoch += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    bands, frames, batch = (64, 128, 128) if big else (16, 32, 4)
    torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
    with torch.device(device):
        model = FrameNetwork(bands, 4096 if big else 64, 3 if big else 2, 512 if big else 32)
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=big)
    dtype = next(model.parameters()).dtype
    loader = DataLoader(TwoViewClips(200_000 if big else 64, frames, bands), batch_size=batch, shuffle=True,
                        num_workers=6 if big else 0, pin_memory=big, drop_last=True, persistent_workers=big)
    stream, meter, count = epochs_of(loader), RetrievalMeter(), [0]

    def step():
        _, views = next(stream)
        views = views.to(device, non_blocking=True).to(dtype)
        both = model(views.transpose(0, 1).reshape(-1, frames, bands))
        loss, logits = two_view_loss(*both.chunk(2))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter.update(logits)
        count[0] += 1
        if count[0] % 50 == 0:
            print(json.dumps({"iter": count[0], "loss": round(loss.item(), 4),
                              "top1": round(meter.hits / meter.total, 4)}), flush=True)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
