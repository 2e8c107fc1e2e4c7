"""Seismic phase picking with long learned filters over whole traces."""
import argparse
import math
import statistics
import time

import scipy.fft
import torch
from torch import nn

SAMPLES, TAPS = 16384, 4096


class LongFilter(nn.Module):
    """Depthwise causal filter of many taps, applied in the frequency domain."""

    def __init__(self, channels, taps=TAPS, padded=False):
        super().__init__()
        decay = torch.exp(-torch.linspace(0, 6, taps))
        self.taps = nn.Parameter(torch.randn(channels, taps) * decay / math.sqrt(taps))
        self.gain = nn.Parameter(torch.ones(channels, 1))
        self.padded = padded

    def forward(self, signal):
        length = signal.shape[-1] + self.taps.shape[-1] - 1
        if self.padded:
            length = scipy.fft.next_fast_len(length, real=True)
        spectrum = torch.fft.rfft(signal, n=length) * torch.fft.rfft(self.taps, n=length)
        return torch.fft.irfft(spectrum, n=length)[..., : signal.shape[-1]] + self.gain * signal


class Block(nn.Module):
    def __init__(self, channels, padded):
        super().__init__()
        self.filter = LongFilter(channels, padded=padded)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.filter(x)))


class Picker(nn.Module):
    def __init__(self, padded, channels=16, depth=2):
        super().__init__()
        self.stem = nn.Conv1d(3, channels, 1)
        self.blocks = nn.Sequential(*[Block(channels, padded) for _ in range(depth)])
        self.head = nn.Conv1d(channels, 3, 1)

    def forward(self, traces):
        return self.head(self.blocks(self.stem(traces)))


def synthetic(batch, generator):
    onset = torch.randint(SAMPLES // 4, SAMPLES // 2, (batch,), generator=generator)
    t = torch.arange(SAMPLES)
    after = (t[None] - onset[:, None]).clamp(min=0).float()
    wave = torch.sin(after / 9) * torch.exp(-after / 900)
    traces = wave[:, None] * torch.tensor([1.0, 0.6, 0.3])[:, None] + 0.1 * torch.randn(batch, 3, SAMPLES,
                                                                                     generator=generator)
    labels = (t[None] > onset[:, None]).long() + (t[None] > onset[:, None] + 1500).long()
    return traces, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    parser.add_argument("--steps", type=int, default=130)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(7)
    batches = [synthetic(4, generator) for _ in range(12)]
    model = Picker(padded=args.variant == "fixed")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    weight = torch.tensor([0.5, 2.0, 1.0])
    times = []
    for step in range(args.steps):
        begin = time.perf_counter()
        traces, labels = batches[step % len(batches)]
        loss = nn.functional.cross_entropy(model(traces), labels, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
        if step % 20 == 0:
            print(f"step {step} loss {value:.4f}")
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
