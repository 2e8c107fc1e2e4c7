"""Acoustic model training: far-field augmentation of padded utterances on the host, CTC on the device."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import signal

PROGRAM = "gg01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 40
WARMUP = 4
RATE = 16000
CLIP = 2 * RATE
BATCH = 24
VOCAB = 96
DITHER = {"slow": 0.0, "fixed": 1e-5}


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


class Corpus:
    """Synthetic utterances of varied length in fixed-size, zero padded buffers."""

    def __init__(self, size, seed=0):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.waves = np.zeros((size, CLIP), dtype=np.float32)
        self.lengths = rng.integers(RATE // 3, RATE, size)
        t = np.arange(CLIP, dtype=np.float32) / RATE
        for row, n in zip(self.waves, self.lengths):
            pitch = rng.uniform(90, 260)
            tone = sum(np.sin(2 * np.pi * pitch * k * t[:n]) / k for k in range(1, 6))
            row[:n] = 0.1 * tone * np.hanning(n) + 0.01 * rng.standard_normal(n)
        self.labels = rng.integers(1, VOCAB, (size, 12))

    def draw(self, count):
        rows = self.rng.integers(0, len(self.waves), count)
        return self.waves[rows], self.lengths[rows], self.labels[rows]


class FarField:
    """Random microphone colouration: resonances and a high-pass in cascade, then a gain."""

    def __init__(self, dither, seed=1):
        self.rng = np.random.default_rng(seed)
        self.dither = dither
        self.floor = self.rng.standard_normal(4 * CLIP).astype(np.float32)

    def colour(self):
        sections = [signal.butter(2, 60, "highpass", fs=RATE, output="sos")]
        for low, high in ((150, 400), (500, 1200), (1500, 3500)):
            freq, radius = self.rng.uniform(low, high), self.rng.uniform(0.95, 0.985)
            angle = 2 * np.pi * freq / RATE
            sections.append([[1.0, -1.0, 0.1, 1.0, -2 * radius * np.cos(angle), radius ** 2]])
        return np.concatenate(sections).astype(np.float32)

    def __call__(self, waves):
        out = np.empty_like(waves)
        for i, wave in enumerate(waves):
            if self.dither:
                at = self.rng.integers(0, 3 * CLIP)
                wave = wave + self.dither * self.floor[at:at + CLIP]
            heard = signal.sosfilt(self.colour(), wave)
            out[i] = heard * (0.1 / (np.abs(heard).max() + 1e-6))
        return out


class LogMel(nn.Module):
    def __init__(self, bands=80, n_fft=512, hop=160):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        edges = 700 * (10 ** (torch.linspace(0, 2840, bands + 2) / 2595) - 1)
        freqs = torch.linspace(0, RATE / 2, n_fft // 2 + 1)
        up = (freqs[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[None, 2:] - freqs[:, None]) / (edges[2:] - edges[1:-1])
        self.register_buffer("bank", torch.minimum(up, down).clamp_min(0))

    def forward(self, waves):
        spec = torch.stft(waves, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = torch.view_as_real(spec).square().sum(-1).transpose(1, 2)
        return (power @ self.bank + 1e-8).log()


class Encoder(nn.Module):
    def __init__(self, width=384, depth=8):
        super().__init__()
        self.features = LogMel()
        self.stem = nn.Sequential(nn.Conv1d(80, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU())
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, waves):
        with torch.no_grad():
            feats = self.features(waves)
            feats = (feats - feats.mean((1, 2), keepdim=True)) / (feats.std((1, 2), keepdim=True) + 1e-3)
        h = self.stem(feats.transpose(1, 2)).transpose(1, 2)
        return self.head(self.blocks(h)).float().log_softmax(-1)


class Trainer:
    def __init__(self, args, device):
        self.device = device
        self.corpus = Corpus(512)
        self.augment = FarField(DITHER[args.variant])
        self.model = Encoder().to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=device.type == "cuda")
        self.target_lengths = torch.full((BATCH,), 12, dtype=torch.long)

    def batch(self):
        waves, lengths, labels = self.corpus.draw(BATCH)
        waves = torch.from_numpy(self.augment(waves))
        labels = torch.from_numpy(labels)
        if self.device.type == "cuda":
            waves, labels = waves.pin_memory(), labels.pin_memory()
        return waves.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)

    def step(self):
        waves, labels = self.batch()
        with torch.autocast(self.device.type, torch.bfloat16):
            logp = self.model(waves)
        frames = torch.full((BATCH,), logp.shape[1], dtype=torch.long)
        loss = F.ctc_loss(logp.transpose(0, 1), labels, frames, self.target_lengths, zero_infinity=True)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Trainer(args, device).step)


if __name__ == "__main__":
    main()
