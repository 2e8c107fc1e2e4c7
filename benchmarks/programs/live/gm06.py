"""Genomic sequence model with long implicit convolutions in place of attention."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1100
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


class ImplicitFilter(nn.Module):
    """Maps positions to filter values through a small sine network, with a decay per channel."""

    def __init__(self, channels, length, features=33, width=64):
        super().__init__()
        t = torch.linspace(0, 1, length)[:, None]
        bands = (features - 1) // 2
        w = 2 * math.pi * torch.linspace(1e-4, bands - 1, bands) * torch.arange(length)[:, None] / length
        self.register_buffer("positions", torch.cat([t, torch.cos(w), -torch.sin(w)], -1))
        rates = torch.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, channels)
        self.register_buffer("window", torch.exp(t * rates))
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, width)
        self.last = nn.Linear(width, channels, bias=False)

    def forward(self):
        h = torch.sin(self.first(self.positions))
        h = torch.sin(self.second(h))
        return (self.last(h) * self.window).T


class CausalLongConv(nn.Module):
    def __init__(self, channels, length, variant):
        super().__init__()
        self.filter = ImplicitFilter(channels, length)
        self.bias = nn.Parameter(torch.randn(channels))
        self.length = length
        self.support = 2 * length if variant == "fixed" else 2 * length - 1

    def forward(self, u):
        k = self.filter()
        n = self.support
        spectrum = torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n)
        y = torch.fft.irfft(spectrum, n=n)[..., :self.length]
        return y + u * self.bias[:, None]


class Mixer(nn.Module):
    def __init__(self, channels, length, variant):
        super().__init__()
        self.inward = nn.Linear(channels, 3 * channels)
        self.long = CausalLongConv(channels, length, variant)
        self.outward = nn.Linear(channels, channels)

    def forward(self, x):
        a, b, v = self.inward(x).transpose(1, 2).chunk(3, dim=1)
        with torch.autocast(x.device.type, enabled=False):
            y = self.long((v * b).float())
        return self.outward((y.to(a.dtype) * a).transpose(1, 2))


class Layer(nn.Module):
    def __init__(self, channels, length, variant):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.mixer = Mixer(channels, length, variant)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GenomeModel(nn.Module):
    def __init__(self, channels, length, layers, variant, letters=12):
        super().__init__()
        self.embed = nn.Embedding(letters, channels)
        self.layers = nn.ModuleList(Layer(channels, length, variant) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, letters)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Genome:
    """Cuts random windows from a synthetic chromosome that stays on the device."""

    def __init__(self, size, length, batch, device):
        self.bases = torch.randint(7, 11, (size,), device=device)
        self.length, self.batch = length, batch
        self.reach = torch.arange(length + 1, device=device)

    def windows(self):
        starts = torch.randint(0, self.bases.numel() - self.length - 1, (self.batch, 1), device=self.bases.device)
        cut = self.bases[starts + self.reach]
        return cut[:, :-1], cut[:, 1:]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    small = device.type == "cpu"
    channels, length, batch, layers = (32, 256, 2, 2) if small else (512, 4096, 8, 4)
    genome = Genome(10 ** 5 if small else 10 ** 8, length, batch, device)
    model = GenomeModel(channels, length, layers, args.variant).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=device.type == "cuda")
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 100))
    state = {"i": 0, "loss": torch.zeros((), device=device)}

    def step():
        ids, targets = genome.windows()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        warm.step()
        state["loss"].lerp_(loss.detach(), 0.05)
        state["i"] += 1
        if state["i"] % 200 == 0:
            print(f"step {state['i']} loss {state['loss'].item():.4f}", flush=True)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
