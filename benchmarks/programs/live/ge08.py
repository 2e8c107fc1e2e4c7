"""Speech keyword training with room acoustics and background noise mixed in on the device."""
import argparse
import json
import statistics
import time
import random

import scipy.fft
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
WARMUP = 30


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


class Convolver:
    """Full linear convolution along the last axis."""

    def __init__(self, variant):
        self.size = scipy.fft.next_fast_len if variant == "fixed" else (lambda n, real: n)

    def __call__(self, signal, kernel):
        n = signal.shape[-1] + kernel.shape[-1] - 1
        m = self.size(n, True)
        product = torch.fft.rfft(signal, n=m) * torch.fft.rfft(kernel, n=m)
        return torch.fft.irfft(product, n=m)[..., :n]


class RoomBank:
    """Impulse responses of rooms, cut where their energy has died away."""

    def __init__(self, count, longest, shortest, device):
        generator = torch.Generator().manual_seed(21)
        self.responses = []
        for _ in range(count):
            length = int(torch.randint(shortest, longest, (1,), generator=generator))
            time_axis = torch.arange(length) / length
            tail = torch.randn(length, generator=generator) * torch.exp(-6.0 * time_axis)
            tail[0] = 1.0
            self.responses.append((tail / tail.norm()).to(device))

    def pick(self, rng):
        return self.responses[rng.randrange(len(self.responses))]


class Augment(nn.Module):
    def __init__(self, rooms, convolve, noise):
        super().__init__()
        self.rooms, self.convolve = rooms, convolve
        self.register_buffer("noise", noise)
        self.rng = random.Random(4)

    @torch.no_grad()
    def forward(self, clean):
        b, n = clean.shape
        start = self.rng.randrange(self.noise.shape[1] - n)
        rows = torch.randint(0, len(self.noise), (b,), device=clean.device)
        noise = self.noise[rows, start:start + n]
        speech = self.convolve(clean, self.rooms.pick(self.rng)[None])[:, :n]
        noise = self.convolve(noise, self.rooms.pick(self.rng)[None])[:, :n]
        level = torch.empty(b, 1, device=clean.device).uniform_(5, 20)
        ratio = speech.norm(dim=1, keepdim=True) / (noise.norm(dim=1, keepdim=True) + 1e-6)
        return speech + noise * ratio * 10 ** (-level / 20)


class LogMel(nn.Module):
    def __init__(self, bands=64, window=400, hop=160):
        super().__init__()
        self.window, self.hop = window, hop
        centres = torch.linspace(0, window // 2, bands + 2)
        bins = torch.arange(window // 2 + 1)
        rising = (bins[None] - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
        falling = (centres[2:, None] - bins[None]) / (centres[2:] - centres[1:-1])[:, None]
        self.register_buffer("bank", torch.minimum(rising, falling).clamp_(min=0))
        self.register_buffer("taper", torch.hann_window(window))

    @torch.no_grad()
    def forward(self, wave):
        spectrum = torch.stft(wave, self.window, self.hop, window=self.taper, return_complex=True)
        return torch.log(torch.matmul(self.bank, spectrum.abs().square()) + 1e-5)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class Recognizer(nn.Module):
    def __init__(self, bands, dim, layers, heads, words):
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv1d(bands, dim, 5, 2, 2), nn.SiLU(), nn.Conv1d(dim, dim, 5, 2, 2), nn.SiLU())
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, words)

    def forward(self, mel):
        x = self.subsample(mel).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Trainer:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        noise = torch.randn(cfg["noises"], cfg["samples"] + 8000, device=device)
        rooms = RoomBank(cfg["rooms"], cfg["longest"], cfg["longest"] // 3, device)
        self.augment = Augment(rooms, Convolver(variant), noise).to(device)
        self.features = LogMel().to(device)
        self.model = Recognizer(64, cfg["dim"], cfg["layers"], 4, cfg["words"]).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=device.type == "cuda")
        self.speech = torch.randn(cfg["clips"], cfg["samples"], device=device)
        self.words = torch.randint(0, cfg["words"], (cfg["clips"],), device=device)

    def step(self):
        pick = torch.randint(0, self.cfg["clips"], (self.cfg["batch"],), device=self.device)
        wave = self.augment(self.speech[pick])
        mel = self.features(wave)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(mel)
        loss = F.cross_entropy(logits.float(), self.words[pick])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(clips=1024, samples=160_000, noises=256, rooms=24, longest=24_000, batch=192, dim=192,
                   layers=3, words=200)
    else:
        cfg = dict(clips=8, samples=4000, noises=4, rooms=3, longest=900, batch=2, dim=32, layers=1, words=10)
    run_loop(args, device, Trainer(cfg, device, args.variant).step)


if __name__ == "__main__":
    main()
