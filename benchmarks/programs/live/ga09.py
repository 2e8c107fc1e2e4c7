"""Vocal separation: a frame-wise mask network trained on spectrograms of synthetic mixtures."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ga09"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
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


class Spectrogram(nn.Module):
    """Magnitudes of a windowed transform, with the number of bands that the network reads."""

    def __init__(self, n_fft, hop, bands):
        super().__init__()
        self.n_fft, self.hop, self.bands = n_fft, hop, bands
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)

    def forward(self, wave):
        z = torch.stft(wave, self.n_fft, self.hop, window=self.window, center=True,
                       normalized=True, return_complex=True)
        return z.abs().transpose(1, 2)[..., :self.bands].contiguous()


class BandScaler(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(bands))
        self.scale = nn.Parameter(torch.ones(bands))

    def forward(self, x):
        return (x + self.shift) * self.scale


class MixerBlock(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.norm = nn.LayerNorm(bands)
        self.first = nn.Linear(bands, bands)
        self.second = nn.Linear(bands, bands)

    def forward(self, x):
        return x + self.second(F.relu(self.first(self.norm(x))))


class MaskNet(nn.Module):
    def __init__(self, bands, blocks):
        super().__init__()
        self.input = BandScaler(bands)
        self.blocks = nn.ModuleList(MixerBlock(bands) for _ in range(blocks))
        self.output = nn.Linear(bands, bands)

    def forward(self, magnitude):
        x = self.input(torch.log1p(magnitude))
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(self.output(x))


class Mixtures:
    """Random harmonic voices over coloured noise."""

    def __init__(self, rate, seconds, batch, device):
        self.length, self.batch, self.device = int(rate * seconds), batch, device
        self.time = torch.arange(self.length, device=device) / rate

    def draw(self):
        pitch = 80 + 240 * torch.rand(self.batch, 1, device=self.device)
        voice = sum(torch.sin(6.2832 * k * pitch * self.time) / k for k in (1, 2, 3))
        noise = torch.randn(self.batch, self.length, device=self.device)
        noise = noise + 0.7 * noise.roll(1, dims=-1)
        return voice, 0.5 * noise


def relative_error(estimate, target):
    return (estimate - target).abs().mean() / target.abs().mean().clamp(min=1e-6)


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    n_fft, hop, rate, seconds, batch, blocks = (4096, 512, 44100, 11.9, 24, 3) if on_gpu else (256, 64, 8000, 0.5, 2, 1)
    bands = n_fft // 2 + 1
    if args.variant == "fixed":
        bands = n_fft // 2
    spectrogram = Spectrogram(n_fft, hop, bands).to(device)
    model = MaskNet(bands, blocks).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=on_gpu)
    mixtures = Mixtures(rate, seconds, batch, device)
    voices = [mixtures.draw() for _ in range(4)]
    errors = []
    count = 0

    def step():
        nonlocal count
        voice, backing = voices[count % len(voices)]
        gain = 0.5 + torch.rand(batch, 1, device=device)
        voice = gain * voice
        with torch.no_grad():
            mixture = spectrogram(voice + backing)
            target = spectrogram(voice)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            mask = model(mixture)
        loss = F.mse_loss(mask * mixture, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        count += 1
        if count % 50 == 0:
            with torch.no_grad():
                errors.append(relative_error(mask * mixture, target).item())

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
