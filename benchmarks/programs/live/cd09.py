"""Speech activity and speaker-turn scores for many conference channels, block by block."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn

RATE, FFT, HOP, MELS = 16000, 1024, 512, 80


def mel_bank():
    def mel(f):
        return 2595 * math.log10(1 + f / 700)
    edges = torch.linspace(mel(40), mel(RATE / 2), MELS + 2)
    hz = 700 * (10 ** (edges / 2595) - 1)
    bins = torch.linspace(0, RATE / 2, FFT // 2 + 1)
    up = (bins[:, None] - hz[:-2]) / (hz[1:-1] - hz[:-2])
    down = (hz[2:] - bins[:, None]) / (hz[2:] - hz[1:-1])
    return torch.minimum(up, down).clamp_min(0)


class Conference:
    """Channels that speak or are muted; a muted channel delivers zeros."""

    def __init__(self, channels, block, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.channels, self.block, self.t = channels, block, 0
        self.pitch = torch.rand(channels, 1, generator=self.g) * 120 + 90
        self.leaves = torch.where(torch.rand(channels, generator=self.g) < 0.6, 3, 10 ** 9)
        phase = 2 * math.pi * self.pitch * torch.arange(16 * block) / RATE
        self.voice = 0.2 * torch.sin(phase) + 0.1 * torch.sin(3 * phase)
        self.voice += 0.02 * torch.randn(channels, 16 * block, generator=self.g)

    def read(self):
        lo = self.t * self.block % self.voice.shape[1]
        x = self.voice[:, lo:lo + self.block].clone()
        x *= (self.t < self.leaves).float()[:, None]
        self.t += 1
        return x


class FrontEnd(nn.Module):
    """Smoothed log-mel energies with state carried over between blocks."""

    def __init__(self, channels, smooth=0.6, floor=0.0):
        super().__init__()
        self.register_buffer("window", torch.hann_window(FFT))
        self.register_buffer("bank", mel_bank())
        self.register_buffer("tail", torch.zeros(channels, FFT - HOP))
        self.register_buffer("power", torch.zeros(channels, FFT // 2 + 1))
        self.smooth, self.floor = smooth, floor

    def forward(self, x):
        x = torch.cat([self.tail, x], 1)
        self.tail.copy_(x[:, -(FFT - HOP):])
        frames = x.unfold(1, FFT, HOP) * self.window
        spec = torch.view_as_real(torch.fft.rfft(frames)).square().sum(-1)
        out = []
        for i in range(spec.shape[1]):
            self.power.mul_(self.smooth).add_(spec[:, i] + self.floor, alpha=1 - self.smooth)
            out.append(self.power @ self.bank)
        mel = torch.stack(out, 1)
        return (mel + 1e-6).log()


class TurnModel(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(MELS, hidden), nn.ReLU(), nn.LayerNorm(hidden))
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.mix = nn.TransformerEncoderLayer(hidden, 4, 2 * hidden, 0.0, batch_first=True)
        self.activity, self.turn = nn.Linear(hidden, 1), nn.Linear(hidden, 3)

    def forward(self, mel, state):
        h, state = self.rnn(self.inp(mel), state)
        last = self.mix(h[:, -1].unsqueeze(0)).squeeze(0)
        return self.activity(last).sigmoid().squeeze(1), self.turn(last).softmax(1), state


class Hysteresis:
    def __init__(self, channels, on=0.6, off=0.4):
        self.active, self.on, self.off = torch.zeros(channels, dtype=torch.bool), on, off
        self.changes = 0

    def __call__(self, p):
        now = torch.where(self.active, p > self.off, p > self.on)
        self.changes += int((now != self.active).sum())
        self.active = now
        return now


@torch.inference_mode()
def stream(args):
    source = Conference(args.channels, args.block)
    front = FrontEnd(args.channels, floor=1e-10 if args.variant == "fixed" else 0.0).eval()
    model, gate, state = TurnModel().eval(), Hysteresis(args.channels), None
    for _ in range(args.preroll):
        front(source.read())
    times, begin, score = [], time.perf_counter(), 0.0
    for _ in range(args.steps):
        t0 = time.perf_counter()
        x = source.read()
        activity, turn, state = model(front(x), state)
        active = gate(activity)
        score = 0.9 * score + 0.1 * float((turn[:, 0] * active).mean())
        now = time.perf_counter()
        times.append((now - t0) * 1e3)
        if now - begin > args.max_seconds:
            break
    return times, gate.changes, score


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--channels", type=int, default=96)
    p.add_argument("--preroll", type=int, default=60)
    p.add_argument("--block", type=int, default=2048)
    args = p.parse_args()
    torch.manual_seed(0)
    times, changes, score = stream(args)
    t = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "changes": changes, "score": round(score, 4)}))


if __name__ == "__main__":
    main()
